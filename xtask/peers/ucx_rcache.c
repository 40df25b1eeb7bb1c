/*
 * Times UCX's registration cache, with callbacks that register nothing.
 *
 * Reads lines "hit BUFFERS OPERATIONS" or "miss BUFFERS OPERATIONS" and answers each with the
 * nanoseconds that one operation took; ends with its input. So whoever asks can let rounds of this
 * take turns with rounds of something else.
 *
 *   hit    get + put of a buffer that is in the cache, BUFFERS of them in turn
 *   miss   get of a buffer that is not in the cache + invalidate + put, where the cache holds as many
 *          others as the last hits have put there
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include <ucs/memory/rcache.h>

#define LENGTH 4096
#define MOST_BUFFERS 65536
#define MOST_OPERATIONS 100000000L
#define PROT (PROT_READ | PROT_WRITE)

static unsigned long registered, deregistered;

static ucs_status_t mem_reg(void *context, ucs_rcache_t *rcache, void *arg,
                            ucs_rcache_region_t *region, uint16_t flags)
{
    registered++;
    return UCS_OK;
}

static void mem_dereg(void *context, ucs_rcache_t *rcache, ucs_rcache_region_t *region)
{
    deregistered++;
}

static void dump_region(void *context, ucs_rcache_t *rcache, ucs_rcache_region_t *region,
                        char *buf, size_t max)
{
    if (max > 0) {
        buf[0] = '\0';
    }
}

static void ignore(void *arg)
{
}

static void fail(const char *what)
{
    fprintf(stderr, "ucx_rcache: %s\n", what);
    exit(1);
}

static double now(void)
{
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1e9 + time.tv_nsec;
}

static ucs_rcache_t *make_cache(void)
{
    static const ucs_rcache_ops_t ops = {mem_reg, mem_dereg, dump_region};
    ucs_rcache_params_t params = {
        .region_struct_size = sizeof(ucs_rcache_region_t),
        .alignment          = UCS_RCACHE_MIN_ALIGNMENT,
        .max_alignment      = LENGTH,
        .ucm_events         = 0,
        .ops                = &ops,
        .flags              = UCS_RCACHE_FLAG_NO_PFN_CHECK,
        .max_regions        = SIZE_MAX,
        .max_size           = SIZE_MAX,
        .max_unreleased     = SIZE_MAX,
    };
    ucs_rcache_t *cache;

    if (ucs_rcache_create(&params, "bench", NULL, &cache) != UCS_OK) {
        fail("ucs_rcache_create failed");
    }
    return cache;
}

static ucs_rcache_region_t *get(ucs_rcache_t *cache, char *buffer)
{
    ucs_rcache_region_t *region;

    if (ucs_rcache_get(cache, buffer, LENGTH, PROT, NULL, &region) != UCS_OK) {
        fail("ucs_rcache_get failed");
    }
    return region;
}

/* Every other page, or the cache would merge neighbours. */
static char *page(char *memory, long index)
{
    return memory + index * 2 * LENGTH;
}

static void hit(ucs_rcache_t *cache, char *memory, long buffers, long operations)
{
    long buffer = 0;

    for (long i = 0; i < operations; i++) {
        ucs_rcache_region_put(cache, get(cache, page(memory, buffer)));
        buffer = (buffer + 1 == buffers) ? 0 : buffer + 1;
    }
}

/* Behind the buffers that are hit. */
static void miss(ucs_rcache_t *cache, char *memory, long buffers, long operations)
{
    long buffer = 0;

    for (long i = 0; i < operations; i++) {
        ucs_rcache_region_t *region = get(cache, page(memory, MOST_BUFFERS + buffer));

        ucs_rcache_region_invalidate(cache, region, ignore, NULL);
        ucs_rcache_region_put(cache, region);
        buffer = (buffer + 1 == buffers) ? 0 : buffer + 1;
    }
}

typedef void work_t(ucs_rcache_t *, char *, long, long);

/* Nanoseconds per operation, of which each registers and deregisters as often as said. */
static double timed(work_t *work, unsigned long registrations, ucs_rcache_t *cache, char *memory,
                    long buffers, long operations)
{
    unsigned long registered_before = registered, deregistered_before = deregistered;
    double start = now();

    work(cache, memory, buffers, operations);
    start = now() - start;
    if (registered - registered_before != registrations * operations ||
        deregistered - deregistered_before != registrations * operations) {
        fail("a hit was a miss, or a miss was a hit");
    }
    return start / operations;
}

static double run(ucs_rcache_t *cache, char *memory, const char *work, long buffers,
                  long operations)
{
    if (strcmp(work, "hit") == 0) {
        hit(cache, memory, buffers, buffers);
        return timed(hit, 0, cache, memory, buffers, operations);
    }
    if (strcmp(work, "miss") == 0) {
        return timed(miss, 1, cache, memory, buffers, operations);
    }
    fail("what is that? Ask for: hit|miss BUFFERS OPERATIONS");
    return 0;
}

int main(void)
{
    ucs_rcache_t *cache = make_cache();
    char *memory        = mmap(NULL, MOST_BUFFERS * 4UL * LENGTH, PROT,
                               MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char line[128], work[16];
    long buffers, operations;

    if (memory == MAP_FAILED) {
        fail("no memory");
    }
    while (fgets(line, sizeof(line), stdin) != NULL) {
        if (sscanf(line, "%15s %ld %ld", work, &buffers, &operations) != 3 || buffers < 1 ||
            buffers > MOST_BUFFERS || operations < 1 || operations > MOST_OPERATIONS) {
            fail("ask for: hit|miss BUFFERS OPERATIONS");
        }
        printf("%.3f\n", run(cache, memory, work, buffers, operations));
        fflush(stdout);
    }
    return 0;
}
