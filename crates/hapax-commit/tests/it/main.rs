//! Tests of the commit machines through their public interface.

#![allow(clippy::unwrap_used, reason = "tests may panic")]

mod bookmark;
mod broker;
mod carried;
mod chain;
mod cohort;
mod crash;
mod diagram;
mod durable;
mod evidence;
mod exploration;
mod fixture;
mod handover;
mod journal;
mod lane;
mod ledger;
mod pointer;
mod present;
mod recovery;
mod revision;
mod takeover;
