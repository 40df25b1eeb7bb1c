//! What the figures of a preset must satisfy, alone and together.

use super::Preset;

/// An hour: longer than any operation of an HCA, and short enough that sums do not overflow.
const MAX_NANOS: u64 = 3_600_000_000_000;
/// Keys have 24 bits of index, and the mock uses the top one to tell local from remote keys.
const MAX_REGIONS: u64 = (1 << 23) - 1;
/// Larger than any cache or region that exists.
const MAX_COUNT: u64 = 1 << 24;

/// The first field at fault, and what is wrong with it.
pub(super) fn check(preset: &Preset) -> Result<(), (&'static str, String)> {
    check_times(preset)?;
    check_limits(preset)?;
    check_cache(
        ("mpt_entries", preset.mpt_entries.value),
        ("mpt_ways", preset.mpt_ways.value),
    )?;
    check_cache(
        ("mtt_lines", preset.mtt_lines.value),
        ("mtt_ways", preset.mtt_ways.value),
    )?;
    check_size(preset)
}

fn check_times(preset: &Preset) -> Result<(), (&'static str, String)> {
    for figure in preset.figures() {
        if figure.name.ends_with("_ns") {
            let nanos = figure.value.parse().unwrap_or(u64::MAX);
            within(figure.name, nanos, 0, MAX_NANOS)?;
        }
    }
    Ok(())
}

fn check_limits(preset: &Preset) -> Result<(), (&'static str, String)> {
    within("max_regions", preset.max_regions.value, 1, MAX_REGIONS)?;
    within("max_pages", preset.max_pages.value, 1, MAX_COUNT)?;
    within("max_batch", preset.max_batch.value, 1, MAX_COUNT)?;
    within("page_bytes", preset.page_bytes.value, 512, 1 << 30)?;
    within("mtu_bytes", preset.mtu_bytes.value, 256, 65_536)?;
    within("mtt_line_pages", preset.mtt_line_pages.value, 1, 4096)?;
    within("miss_overlap", preset.miss_overlap.value, 1, 1024)?;
    within(
        "map_inline_pages",
        preset.map_inline_pages.value,
        0,
        MAX_COUNT,
    )?;
    within(
        "link_bytes_per_s",
        preset.link_bytes_per_s.value,
        1_000_000,
        1 << 40,
    )?;
    power_of_two("page_bytes", preset.page_bytes.value)?;
    power_of_two("mtu_bytes", preset.mtu_bytes.value)?;
    power_of_two("mtt_line_pages", preset.mtt_line_pages.value)?;
    match preset.tag_bits.value {
        0 | 8 => Ok(()),
        other => Err(("tag_bits", format!("must be 0 or 8, not {other}"))),
    }
}

fn check_cache(
    (entries_name, entries): (&'static str, u64),
    (ways_name, ways): (&'static str, u64),
) -> Result<(), (&'static str, String)> {
    within(entries_name, entries, 0, MAX_COUNT)?;
    within(ways_name, ways, 1, 4096)?;
    let sets = entries / ways;
    if entries == 0 || (entries % ways == 0 && sets.is_power_of_two()) {
        Ok(())
    } else {
        Err((
            entries_name,
            format!("must be 0, or {ways_name} ({ways}) times a power of two, not {entries}"),
        ))
    }
}

fn check_size(preset: &Preset) -> Result<(), (&'static str, String)> {
    let bytes = preset
        .max_pages
        .value
        .saturating_mul(preset.page_bytes.value);
    if bytes > 1 << 40 {
        return Err((
            "max_pages",
            format!("times page_bytes must not pass a tebibyte, it is {bytes} bytes"),
        ));
    }
    Ok(())
}

fn within(
    field: &'static str,
    value: u64,
    low: u64,
    high: u64,
) -> Result<(), (&'static str, String)> {
    if (low..=high).contains(&value) {
        Ok(())
    } else {
        Err((field, format!("must be from {low} to {high}, not {value}")))
    }
}

fn power_of_two(field: &'static str, value: u64) -> Result<(), (&'static str, String)> {
    if value.is_power_of_two() {
        Ok(())
    } else {
        Err((field, format!("must be a power of two, not {value}")))
    }
}
