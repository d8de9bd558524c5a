//! `cargo xtask proof`: everything that shows the protocol right, at length: every world of the model and every planted
//! mistake, the simulator, the fuzz targets.
//!
//! Each part is a command of its own and prints its own JSON. One that fails does not keep the others from being played.

use std::time::Instant;

use serde_json::{Map, Value, json};

use super::{fuzz, model, sim};
use crate::Failure;
use crate::arguments::Arguments;

const SEEDS: u64 = 10_000;

pub(crate) fn run(mut arguments: Arguments) -> Result<(), Failure> {
    let seeds: u64 = arguments.parsed("--seeds")?.unwrap_or(SEEDS);
    let seconds: Option<u64> = arguments.parsed("--seconds")?;
    arguments.nothing_left()?;
    let with = |words: Vec<String>| Arguments::new(words.into_iter());
    let of_fuzz = seconds.map(|seconds| vec!["--seconds".to_owned(), seconds.to_string()]);
    let mut times = Map::new();
    let mut failed = Vec::new();
    let mut play = |name: &str, part: &mut dyn FnMut() -> Result<(), Failure>| {
        println!("proof: {name}");
        let began = Instant::now();
        if let Err(failure) = part() {
            failure.print();
            failed.push(name.to_owned());
        }
        times.insert(name.to_owned(), Value::from(began.elapsed().as_secs()));
    };
    play("model", &mut || model::run(with(Vec::new())));
    play("sim", &mut || sim::run(with(vec!["--seeds".to_owned(), seeds.to_string()])));
    play("fuzz", &mut || fuzz::run(with(of_fuzz.clone().unwrap_or_default())));
    println!("{}", json!({ "seconds": times, "failed": failed }));
    match failed.as_slice() {
        [] => Ok(()),
        failed => Err(Failure::Failed(format!("not proved: {}", failed.join(", ")))),
    }
}
