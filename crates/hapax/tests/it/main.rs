//! Jobs through the library's public face.

#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    missing_docs,
    reason = "tests stand outside the seam, and a panic is how they fail"
)]

mod counting;
mod guarantee;
mod paused;
