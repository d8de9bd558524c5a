//! Lines of files (NDJSON, or any text), and of standard input.
//!
//! Each file is a split; a line is a record whose offset is that of its first byte. Bounded by default: a file ends
//! where it ended when the job was created, with or without a line break. A followed file never ends, and a line
//! counts when its line break is there.
//!
//! A position belongs to one file: device, inode, and a checksum of its head are kept with it. What has another
//! identity, or has become shorter, is not served. What is no regular file has neither a length nor a second reading,
//! and is refused before it is opened. Standard input (`-`) cannot be read again: a job that reads it
//! can promise nothing, and lines that were read ahead die with a run.

mod cut;
mod file;
mod standard;

use super::{BoxFuture, Chunk, Reader, Source, SourceContext, SourceError, SourceTopic, irregular};
use crate::batch::Origin;
use hapax_commit::{Position, Positions, SplitId};
use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

/// The path that means standard input.
pub const STANDARD_INPUT: &str = "-";

/// What a line must be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LineFormat {
    /// A JSON value; blank lines are nothing.
    #[default]
    Json,
    /// Anything.
    Text,
}

/// What to do with a line that is not what it must be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BadLine {
    /// End with an error that names file and offset.
    #[default]
    Stop,
    /// Leave it out and count it.
    Skip,
}

/// Reads files line by line.
#[derive(Clone, Debug)]
pub struct LinesSource {
    /// Its name: prefix of its splits.
    pub name: String,
    /// The files; `-` alone is standard input.
    pub paths: Vec<PathBuf>,
    /// What a line must be.
    pub format: LineFormat,
    /// What to do with one that is not.
    pub bad_line: BadLine,
    /// Wait for more at the end of a file.
    pub follow: bool,
}

impl LinesSource {
    /// Reads files of JSON lines to their ends, and stops at a line that is not JSON.
    pub fn new(name: &str, paths: impl IntoIterator<Item = PathBuf>) -> Self {
        Self {
            name: name.to_owned(),
            paths: paths.into_iter().collect(),
            format: LineFormat::default(),
            bad_line: BadLine::default(),
            follow: false,
        }
    }

    fn is_standard_input(&self) -> bool {
        self.paths.iter().any(|path| path.as_os_str() == STANDARD_INPUT)
    }

    fn split(&self, path: &Path) -> SplitId {
        SplitId(format!("{}/{}", self.name, path.display()))
    }

    fn place(&self, split: &SplitId) -> Option<&PathBuf> {
        self.paths.iter().find(|path| self.split(path) == *split)
    }

    fn rules(&self) -> cut::Rules {
        cut::Rules { format: self.format, bad_line: self.bad_line }
    }

    fn origin(&self, split: SplitId, path: &Path) -> Arc<Origin> {
        Arc::new(Origin { split, topic: path.display().to_string().into(), partition: 0, partitions: None })
    }

    fn wrong(&self, reason: String) -> SourceError {
        SourceError::Configuration { source_name: self.name.clone(), reason }
    }

    /// A new job whose file is not there is written wrongly; an old one's may come back.
    fn present(&self, path: &Path) -> Result<(), SourceError> {
        let shown = path.display();
        match irregular(path) {
            Ok(None) => Ok(()),
            Ok(Some(what)) => Err(self.wrong(format!(
                "{shown} is {what} and not a regular file, so it has no end and cannot be read again after a crash; put \
                 the lines into a file or a topic first, or read standard input with file = \"-\" and guarantee = \"none\""
            ))),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                Err(self.wrong(format!("there is no file {shown}; correct the path")))
            }
            Err(source) => Err(file::failed(path, source)),
        }
    }

    /// The beginning of every file that is not known, and where it ends now.
    fn concrete(&self, cx: &SourceContext, known: &Positions) -> Result<Positions, SourceError> {
        let position = |path: &PathBuf| {
            if self.is_standard_input() {
                return Ok((self.split(path), beginning()));
            }
            self.present(path)?;
            let (identity, length) = file::identify(&cx.host, path)?;
            let end = (!self.follow).then_some(length);
            Ok((self.split(path), Position { file: Some(identity), end, ..beginning() }))
        };
        self.paths.iter().filter(|path| !known.contains_key(&self.split(path))).map(position).collect()
    }

    fn check(&self, cx: &SourceContext, positions: &Positions) -> Result<(), SourceError> {
        for (split, position) in positions {
            match self.place(split) {
                Some(path) if !self.is_standard_input() => file::check(&cx.host, path, position)?,
                _ => {}
            }
        }
        Ok(())
    }

    fn open(&self, cx: &SourceContext, positions: Positions) -> Result<Box<dyn Reader>, SourceError> {
        let mut files = Vec::new();
        for (split, position) in positions {
            let Some(path) = self.place(&split) else { continue };
            let origin = self.origin(split, path);
            if self.is_standard_input() {
                let reader = standard::StandardReader::start(&cx.host, origin, position, self.rules())?;
                return Ok(Box::new(reader));
            }
            if !position.at_end() {
                files.push(file::FileLines::open(&cx.host, path, origin, position, self.rules())?);
            }
        }
        Ok(Box::new(file::FilesReader::new(cx.host.clone(), files)))
    }
}

fn beginning() -> Position {
    Position { next: 0, leader_epoch: None, topic_id: None, file: None, end: None }
}

impl Source for LinesSource {
    fn name(&self) -> &str {
        &self.name
    }

    fn replayable(&self) -> bool {
        !self.is_standard_input()
    }

    fn topics<'a>(&'a self, _: &'a SourceContext) -> BoxFuture<'a, Result<Vec<SourceTopic>, SourceError>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    fn genesis<'a>(&'a self, cx: &'a SourceContext) -> BoxFuture<'a, Result<Positions, SourceError>> {
        Box::pin(async move { self.concrete(cx, &Positions::new()) })
    }

    /// A file that the job knows need not be there any more, if it is read.
    fn added<'a>(
        &'a self,
        cx: &'a SourceContext,
        known: &'a Positions,
    ) -> BoxFuture<'a, Result<Positions, SourceError>> {
        Box::pin(async move { self.concrete(cx, known) })
    }

    fn has(&self, split: &SplitId) -> bool {
        self.place(split).is_some()
    }

    fn serves<'a>(
        &'a self,
        cx: &'a SourceContext,
        positions: &'a Positions,
    ) -> BoxFuture<'a, Result<(), SourceError>> {
        Box::pin(async move { self.check(cx, positions) })
    }

    fn reader<'a>(
        &'a self,
        cx: &'a SourceContext,
        positions: Positions,
    ) -> BoxFuture<'a, Result<Box<dyn Reader>, SourceError>> {
        Box::pin(async move { self.open(cx, positions) })
    }
}

/// What both readers give back.
fn chunk(cut: cut::Lines, position: Position, lag: Option<u64>) -> Chunk {
    Chunk { batch: cut.batch, position, lag, skipped: cut.skipped }
}

#[cfg(test)]
mod tests;
