#!/bin/busybox sh
# First process of the guest. Brings up rxe0 on eth0, runs what the host asks for, and reports.
#
# The host gives a shell script through QEMU's firmware interface; it sets GUEST, ADDRESS, LIMIT and INTERACTIVE, and defines
# job(), which calls run() per program. What programs print goes to the second and third serial line, what the
# host must know to the fourth, one line each: "setup MESSAGE", "start NAME", "end CODE NAME", "timeout", "status CODE".

/bin/busybox mkdir -p /bin /dev /proc /sys /run /tmp
/bin/busybox --install -s /bin
export PATH=/opt/bin:/bin HOME=/ LANG=C.UTF-8

mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs dev /dev
mkdir -p /dev/pts /dev/shm
mount -t devpts devpts /dev/pts
mount -t tmpfs tmpfs /dev/shm
mount -t tmpfs tmpfs /run
mount -t tmpfs tmpfs /tmp

report() {
    echo "$*" >/dev/ttyS3
}

# Reports, and ends the machine. A line is out before its device is closed, so nothing is lost here.
stop() {
    report "$@"
    reboot -f
    exec sleep 60
}

die() {
    echo "init: $*" >/dev/console
    stop setup "$@"
}

# run NAME PROGRAM ARGUMENTS...: the first failure is the status of all.
run() {
    name=$1
    shift
    report start "$name"
    "$@"
    code=$?
    report end "$code" "$name"
    [ "$first" != 0 ] || first=$code
}

uptime_seconds() {
    cut -d. -f1 /proc/uptime
}

# until_true SECONDS COMMAND...: tries again until it succeeds or the time is over.
until_true() {
    end=$(($(uptime_seconds) + $1))
    shift
    until "$@"; do
        [ "$(uptime_seconds)" -lt "$end" ] || return 1
        sleep 0.1
    done
}

has_ipv4_gid() {
    grep -qs '0000:0000:0000:0000:0000:ffff:' /sys/class/infiniband/rxe0/ports/1/gids/*
}

# Whether a server listens on a TCP port, without connecting to it.
listens() {
    netstat -ltn | grep -q "[:.]$1 "
}

# Where every thread of every program is in the kernel.
show_threads() {
    for thread in /proc/[0-9]*/task/[0-9]*; do
        readlink "$thread/exe" >/dev/null || continue
        echo "$thread ($(cat "$thread/comm")):"
        cat "$thread/stack"
    done
}

for line in 1 2 3; do
    stty -F /dev/ttyS$line raw -echo 115200 || die "serial line $line is missing"
done
modprobe -a qemu_fw_cfg virtio_pci virtio_net crc32_generic rdma_rxe ib_uverbs rdma_ucm || die "cannot load the kernel modules"
cat /sys/firmware/qemu_fw_cfg/by_name/opt/xtask/job/raw >/run/job || die "the host gave no job"
. /run/job

ulimit -l unlimited
hostname "guest$GUEST"
ip link set lo up
# A machine that answers is a machine that is ready: see the end of the set-up.
echo 1 >/proc/sys/net/ipv4/icmp_echo_ignore_all
ip link set eth0 up || die "no network device"
rdma link add rxe0 type rxe netdev eth0 || die "cannot make rxe0"
# The table of GIDs gets its IPv4 entry from the address, so the address comes second.
ip addr add "$ADDRESS/24" dev eth0 || die "cannot set the address $ADDRESS"
until_true 10 has_ipv4_gid || die "rxe0 got no IPv4 GID"

if [ "$INTERACTIVE" = 1 ]; then
    echo 0 >/proc/sys/net/ipv4/icmp_echo_ignore_all
    echo "guest$GUEST $ADDRESS: rxe0 is up. Leave with exit; Ctrl-A x ends the machine."
    setsid cttyhack sh -l
    stop status $?
fi

# Ends a job that hangs, with the kernel's view of what waits for what in the console's log.
(
    sleep "$LIMIT"
    echo l >/proc/sysrq-trigger
    echo w >/proc/sysrq-trigger
    show_threads >/dev/console 2>/dev/null
    stop timeout
) &

if [ -n "$PEER" ] && [ "$GUEST" = 1 ]; then
    until_true 120 ping -q -c 1 -W 1 "$PEER" >/dev/null 2>&1 || die "the peer $PEER did not get ready"
fi

# Programs write to pipes, since many behave otherwise on a terminal.
mkfifo /run/stdout /run/stderr
cat /run/stdout >/dev/ttyS1 &
out=$!
cat /run/stderr >/dev/ttyS2 &
err=$!
if [ "$GUEST" != 1 ]; then
    (
        [ -z "$PEER_PORT" ] || until_true 60 listens "$PEER_PORT" || die "nothing listens on port $PEER_PORT"
        touch /run/ready
        echo 0 >/proc/sys/net/ipv4/icmp_echo_ignore_all
    ) &
fi
first=0
job </dev/null >/run/stdout 2>/run/stderr
# What a program left running may hold the pipes open.
(
    sleep 5
    kill $out $err
) 2>/dev/null &
wait $out $err

if [ "$GUEST" != 1 ]; then
    [ -z "$PEER_PORT" ] || [ -e /run/ready ] ||
        die "the command ended with status $first and never listened on port $PEER_PORT"
    # The link must stay up until the other machine is done; the host ends this one.
    report status "$first"
    exec sleep "$LIMIT"
fi
stop status "$first"
