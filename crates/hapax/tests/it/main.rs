//! Jobs through the library's public face.

#![allow(clippy::disallowed_methods, missing_docs, reason = "tests stand outside the seam")]

mod counting;
mod paused;
