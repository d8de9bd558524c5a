//! Builds the program under test.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use xtask::process::Supervised;

use crate::Failure;

/// Builds `hapax` and returns the binary.
pub(crate) fn build(release: bool) -> Result<PathBuf, Failure> {
    build_one("hapax", release)
}

/// Builds a binary of the workspace and returns it. The whole workspace is named for the reason that `test` names it.
pub(crate) fn build_one(name: &str, release: bool) -> Result<PathBuf, Failure> {
    let cargo = env::var_os("CARGO").map_or_else(|| PathBuf::from("cargo"), PathBuf::from);
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask is a folder of the workspace");
    let mut command = Command::new(cargo);
    command.args(["build", "--workspace", "--bin", name]).current_dir(root).stdin(Stdio::null());
    if release {
        command.arg("--release");
    }
    if !Supervised::spawn_group(&mut command)?.wait()?.success() {
        return Err(Failure::Failed(format!("the build of {name} failed")));
    }
    let profile = if release { "release" } else { "debug" };
    let binary = target()?.join(profile).join(name);
    match binary.is_file() {
        true => Ok(binary),
        false => Err(Failure::Failed(format!("{name} was built, and {} is not there", binary.display()))),
    }
}

/// The target directory: this program lies in a profile's folder there.
pub(crate) fn target() -> Result<PathBuf, Failure> {
    let own = env::current_exe()?;
    let target = own.parent().and_then(Path::parent);
    let none = || Failure::Failed(format!("{} does not lie in a target directory", own.display()));
    target.map(Path::to_owned).ok_or_else(none)
}
