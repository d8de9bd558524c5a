//! `cargo xtask model`: every world of the model, then every planted mistake, each of which must be caught.
//!
//! A mistake is a patch in `crates/hapax-model/mutants`, applied to a copy of the sources beside the build, never to the
//! sources themselves: shipped code has no switch for one. Its text says what it does, and which world catches it; one in
//! code around the machines is for the simulator, in one of so many seeds:
//!
//! ```text
//! The next epoch is decided while the one before is not proven.
//! world: crash, V2
//! ```
//!
//! ```text
//! A flush does not wait for the brokers' acknowledgements.
//! seeds: 200
//! ```
//!
//! The last line is JSON; exit code 0 only if no world is broken or cut and every mistake is caught.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::{fs, io};

use serde_json::{Value, json};
use xtask::process::Supervised;

use super::program::target;
use super::test::cargo;
use crate::Failure;
use crate::arguments::Arguments;
use crate::need::{self, Need};

/// What the copy has of the sources.
const SOURCES: [&str; 6] = ["Cargo.toml", "Cargo.lock", "crates", "examples", "fuzz", "xtask"];

/// Exit code of either program where a promise is broken.
const BROKEN: i32 = 1;

/// Who catches a mistake.
#[derive(Debug, PartialEq, Eq)]
enum Catcher<'a> {
    /// The world of this name.
    World(&'a str),
    /// The simulator, among so many seeds.
    Seeds(u64),
}

pub(crate) fn run(mut arguments: Arguments) -> Result<(), Failure> {
    let world = arguments.value("--world")?.unwrap_or_default();
    let mutant = arguments.value("--mutant")?;
    arguments.nothing_left()?;
    need::provide(&[Need::Compiler, Need::Git])?;
    let worlds = match mutant {
        Some(_) => Value::Null,
        None => explore(&world)?,
    };
    let caught = match world.is_empty() {
        true => catch(|name| name.contains(mutant.as_deref().unwrap_or_default()))?,
        false => Caught::default(),
    };
    let Caught { planted, missed } = &caught;
    let mut line = json!({ "mutants": planted, "caught": planted - missed.len() });
    if let (Value::Object(line), Value::Object(worlds)) = (&mut line, worlds) {
        line.extend(worlds);
    }
    println!("{line}");
    match world.is_empty() {
        true => caught.demand(1),
        false => Ok(()),
    }
}

/// The worlds, with the machines as they are.
fn explore(world: &str) -> Result<Value, Failure> {
    let mut build = cargo(&["build", "--workspace", "--bin", "model"]);
    if !Supervised::spawn_group(build.stdin(Stdio::null()))?.wait()?.success() {
        return Err(Failure::Failed("the build of the model failed".to_owned()));
    }
    let program = target()?.join("debug/model");
    let (code, text) = play(&program, &[world.to_owned()])?;
    print!("{text}");
    let line = text.lines().last().unwrap_or_default();
    match (code, serde_json::from_str(line)) {
        (Some(0), Ok(counts)) => Ok(counts),
        _ => Err(Failure::Failed("a world is broken, cut, or was not explored".to_owned())),
    }
}

fn play(program: &Path, arguments: &[String]) -> Result<(Option<i32>, String), Failure> {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let output = command.output()?;
    Ok((output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned()))
}

/// Mistakes that were planted, and those that nothing has caught.
#[derive(Default)]
pub(super) struct Caught {
    planted: usize,
    missed: Vec<String>,
}

impl Caught {
    /// # Errors
    /// Not as many were planted as wanted, or something was not caught.
    pub(super) fn demand(&self, wanted: usize) -> Result<(), Failure> {
        match self.missed.as_slice() {
            _ if self.planted < wanted.max(1) => {
                Err(Failure::Failed(format!("{} mistakes were planted, and not {wanted}", self.planted)))
            }
            [] => Ok(()),
            missed => Err(Failure::Failed(format!("nothing has caught: {}", missed.join(", ")))),
        }
    }
}

/// Plants each of the wanted mistakes and plays its world.
pub(super) fn catch(wanted: impl Fn(&str) -> bool) -> Result<Caught, Failure> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask is a folder of the workspace");
    let place = target()?.join("mutants");
    let tree = place.join("tree");
    let mut mistakes = Vec::new();
    for patch in patches(&root.join("crates/hapax-model/mutants"))? {
        let name = patch.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
        if wanted(&name) {
            let text = fs::read_to_string(&patch)?;
            mistakes.push((patch, name, text));
        }
    }
    let mut caught = Caught { planted: mistakes.len(), missed: Vec::new() };
    let mut is_sound = false;
    for (patch, name, text) in &mistakes {
        let (what, catcher) = described(text)
            .ok_or_else(|| Failure::Failed(format!("{} does not say who catches it", patch.display())))?;
        mirror(root, &tree)?;
        if let Catcher::Seeds(_) = catcher
            && !std::mem::replace(&mut is_sound, true)
        {
            let most = mistakes.iter().filter_map(|(.., text)| Some(described(text)?.1.seeds())).max();
            demand_sound(&tree, &place, most.unwrap_or_default())?;
        }
        plant(patch, &tree)?;
        let program = build_in(&tree, &place, &catcher)?;
        let (code, told) = play(&program, &catcher.arguments())?;
        match code == Some(BROKEN) && told.contains(catcher.mark()) {
            true => println!("caught {name}: {what}\n{}", indented(&told)),
            false => {
                println!("MISSED {name}: {what}\n{}", indented(&told));
                caught.missed.push(name.clone());
            }
        }
    }
    mirror(root, &tree)?;
    Ok(caught)
}

/// What is to catch mistakes must find nothing where there is none.
fn demand_sound(tree: &Path, place: &Path, seeds: u64) -> Result<(), Failure> {
    let catcher = Catcher::Seeds(seeds);
    let program = build_in(tree, place, &catcher)?;
    match play(&program, &catcher.arguments())? {
        (Some(0), _) => Ok(()),
        (_, told) => Err(Failure::Failed(format!(
            "{seeds} seeds have a violation without any mistake:\n{}",
            indented(&told)
        ))),
    }
}

fn indented(text: &str) -> String {
    text.lines().map(|line| format!("  {line}\n")).collect()
}

fn patches(folder: &Path) -> Result<Vec<PathBuf>, Failure> {
    let mut patches = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension() == Some(OsStr::new("patch")) {
            patches.push(path);
        }
    }
    patches.sort();
    Ok(patches)
}

impl Catcher<'_> {
    fn arguments(&self) -> Vec<String> {
        match self {
            Self::World(name) => vec![(*name).to_owned()],
            Self::Seeds(seeds) => vec!["--seeds".to_owned(), seeds.to_string()],
        }
    }

    fn seeds(&self) -> u64 {
        match self {
            Self::World(_) => 0,
            Self::Seeds(seeds) => *seeds,
        }
    }

    /// What the program prints of a broken promise.
    fn mark(&self) -> &'static str {
        match self {
            Self::World(_) => "broken: ",
            Self::Seeds(_) => "cargo xtask sim --seeds 1 --seed ",
        }
    }

    fn build(&self) -> &'static [&'static str] {
        match self {
            Self::World(_) => &["--no-default-features", "--bin", "model"],
            Self::Seeds(_) => &["--bin", "hapax-sim"],
        }
    }

    fn program(&self) -> &'static str {
        match self {
            Self::World(_) => "debug/model",
            Self::Seeds(_) => "debug/hapax-sim",
        }
    }
}

/// What a mistake does and who catches it.
fn described(patch: &str) -> Option<(&str, Catcher<'_>)> {
    let mut lines = patch.lines();
    let what = lines.next()?;
    let by = lines.next()?;
    let world = by.strip_prefix("world: ").map(Catcher::World);
    let seeds = || Some(Catcher::Seeds(by.strip_prefix("seeds: ")?.parse().ok()?));
    Some((what, world.or_else(seeds)?))
}

fn plant(patch: &Path, tree: &Path) -> Result<(), Failure> {
    let mut command = Command::new("git");
    // The copy lies inside of a repository that is not its own.
    command.env("GIT_CEILING_DIRECTORIES", tree.parent().unwrap_or(tree));
    command.arg("apply").arg(patch).current_dir(tree).stdin(Stdio::null());
    match Supervised::spawn_group(&mut command)?.wait()?.success() {
        true => Ok(()),
        false => Err(Failure::Failed(format!("{} does not fit the sources any more", patch.display()))),
    }
}

fn build_in(tree: &Path, place: &Path, catcher: &Catcher<'_>) -> Result<PathBuf, Failure> {
    let build = place.join("build");
    let mut command = cargo(&["build", "--quiet", "--package", "hapax-model"]);
    command
        .args(catcher.build())
        .arg("--target-dir")
        .arg(&build)
        .current_dir(tree)
        .env("RUSTFLAGS", "-Awarnings");
    match Supervised::spawn_group(command.stdin(Stdio::null()))?.wait()?.success() {
        true => Ok(build.join(catcher.program())),
        false => Err(Failure::Failed("a planted mistake does not compile".to_owned())),
    }
}

/// Makes the copy equal to the sources; a file that is equal is left, so that nothing is built for it.
fn mirror(root: &Path, tree: &Path) -> Result<(), Failure> {
    fs::create_dir_all(tree)?;
    for source in SOURCES {
        copy(&root.join(source), &tree.join(source))?;
    }
    Ok(())
}

fn copy(from: &Path, to: &Path) -> io::Result<()> {
    if from.is_dir() {
        fs::create_dir_all(to)?;
        for entry in fs::read_dir(to)? {
            let entry = entry?;
            if from.join(entry.file_name()).exists() {
                continue;
            }
            match entry.file_type()?.is_dir() {
                true => fs::remove_dir_all(entry.path())?,
                false => fs::remove_file(entry.path())?,
            }
        }
        for entry in fs::read_dir(from)? {
            let name = entry?.file_name();
            // Builds of workspaces of their own.
            if name != "target" {
                copy(&from.join(&name), &to.join(&name))?;
            }
        }
        return Ok(());
    }
    let wanted = fs::read(from)?;
    match fs::read(to) {
        Ok(found) if found == wanted => Ok(()),
        Ok(_) | Err(_) => fs::write(to, wanted),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_patch_says_what_it_does_and_who_catches_it() {
        let text = "What it does.\nworld: crash, V2\n\ndiff --git a/x b/x\n";
        assert_eq!(described(text), Some(("What it does.", Catcher::World("crash, V2"))));
        let text = "What it does.\nseeds: 200\n\ndiff --git a/x b/x\n";
        assert_eq!(described(text), Some(("What it does.", Catcher::Seeds(200))));
        assert_eq!(described("What it does.\nseeds: many\n"), None);
        assert_eq!(described("What it does.\n\ndiff --git a/x b/x\n"), None);
    }

    #[test]
    fn a_mistake_that_nobody_catches_fails_and_so_does_none_at_all() {
        let caught = |planted, missed: &[&str]| Caught {
            planted,
            missed: missed.iter().map(|name| (*name).to_owned()).collect(),
        };
        assert!(caught(3, &[]).demand(3).is_ok());
        assert!(caught(3, &["one"]).demand(3).is_err());
        assert!(caught(2, &[]).demand(3).is_err());
        assert!(caught(0, &[]).demand(0).is_err());
    }

    #[test]
    fn every_mistake_of_this_repository_names_its_world() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let patches = patches(&root.join("crates/hapax-model/mutants")).unwrap();
        assert!(!patches.is_empty());
        for patch in patches {
            assert!(described(&fs::read_to_string(&patch).unwrap()).is_some(), "{}", patch.display());
        }
    }
}
