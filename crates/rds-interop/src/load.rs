//! Messages that can be told apart and verified, and who sends and receives them.

mod check;
mod content;
mod messages;
mod ping;
mod run;
mod stream;

pub use check::{Checker, Order, Receipt, Wrong};
pub use content::{content, fingerprint};
pub use messages::{Messages, Sizes};
pub use ping::ping;
pub use run::{IfCongested, Sent, receive, send};
pub use stream::{Heard, Stream, Streamed};
