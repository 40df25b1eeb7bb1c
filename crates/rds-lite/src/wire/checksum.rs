//! The checksum of a header.

/// The one's complement sum of RFC 1071 over `bytes`, complemented.
///
/// Over a header whose checksum field is zero this is the checksum; over one whose field is filled
/// in it is zero if the header is intact. A last odd byte counts as if a zero byte followed.
pub fn checksum(bytes: &[u8]) -> u16 {
    let words = bytes.chunks(4);
    let sum: u64 = words
        .map(|word| {
            let mut whole = [0; 4];
            whole[..word.len()].copy_from_slice(word);
            u64::from(u32::from_be_bytes(whole))
        })
        .sum();
    !fold(sum)
}

fn fold(mut sum: u64) -> u16 {
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}
