//! The targets: each file opens with the property that it shows.

pub mod batch_in;
pub mod batch_out;
pub mod durable;
pub mod fetch;
pub mod fetch_response;
pub mod frame;
pub mod pipeline;
pub mod state_log;

mod record;
