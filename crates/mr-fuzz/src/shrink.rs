//! Cutting down an input that breaks a target.

/// The most tries: a target may be slow.
const TRIES: u32 = 3000;

/// The shortest input that is found to break the target still, by leaving out ever smaller pieces.
pub(crate) fn shrink(mut input: Vec<u8>, breaks: impl Fn(&[u8]) -> bool) -> Vec<u8> {
    let mut tries = 0;
    let mut piece = input.len().div_ceil(2);
    while piece > 0 {
        let mut at = 0;
        let mut shorter = false;
        while at < input.len() && tries < TRIES {
            let end = (at + piece).min(input.len());
            let without = [&input[..at], &input[end..]].concat();
            tries += 1;
            if breaks(&without) {
                input = without;
                shorter = true;
            } else {
                at = end;
            }
        }
        if tries >= TRIES {
            break;
        }
        if !shorter {
            piece /= 2;
        }
    }
    input
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_matters_is_left() {
        let input: Vec<u8> = (0..=255).collect();
        let breaks = |input: &[u8]| [7, 99, 200].iter().all(|byte| input.contains(byte));
        assert_eq!(shrink(input, breaks), [7, 99, 200]);
        assert_eq!(shrink(Vec::new(), |_| true), []);
    }

    #[test]
    fn it_ends_although_nothing_can_be_left_out() {
        let input = vec![0; 5000];
        let len = input.len();
        assert_eq!(shrink(input, |input| input.len() == len).len(), len);
    }
}
