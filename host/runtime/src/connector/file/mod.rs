//! Files: a source that reads them and a sink that writes them.
//!
//! Owns nothing itself; `input` and `split` serve the source, `part` the sink.

mod input;
mod part;
pub mod sink;
pub mod source;
mod split;
