//! Standard input: read by a worker of its own, because a read of it may wait for a person.

use super::{
    Chunk, Reader, SourceError, chunk,
    cut::{Rules, cut},
};
use crate::{batch::Origin, limits, source::BoxFuture};
use hapax_commit::Position;
use hapax_host::{Host, WorkerHandle};
use std::{
    io::{self, Read},
    sync::Arc,
};
use tokio::sync::mpsc;

/// Reads standard input to its end, which ends the split.
pub(super) struct StandardReader {
    host: Host,
    bytes: mpsc::Receiver<io::Result<Vec<u8>>>,
    _worker: WorkerHandle,
    origin: Arc<Origin>,
    position: Position,
    rules: Rules,
    rest: Vec<u8>,
}

impl StandardReader {
    pub(super) fn start(
        host: &Host,
        origin: Arc<Origin>,
        position: Position,
        rules: Rules,
    ) -> Result<Self, SourceError> {
        let (send, bytes) = mpsc::channel(limits::STDIN_CHUNKS);
        let worker = host
            .start_worker("stdin", Box::pin(read_all(send)))
            .map_err(|source| SourceError::File { path: super::STANDARD_INPUT.to_owned(), source })?;
        Ok(Self { host: host.clone(), bytes, _worker: worker, origin, position, rules, rest: Vec::new() })
    }

    /// What is received stays in `rest` until it is cut, so a dropped future loses nothing.
    async fn read(&mut self) -> Result<Chunk, SourceError> {
        loop {
            if self.position.at_end() {
                std::future::pending::<()>().await;
            }
            let last = match self.bytes.recv().await {
                Some(Ok(bytes)) => {
                    self.rest.extend_from_slice(&bytes);
                    false
                }
                Some(Err(source)) => {
                    return Err(SourceError::File { path: super::STANDARD_INPUT.to_owned(), source });
                }
                None => true,
            };
            let lines =
                cut(&self.rest, self.position.next, last, self.rules, &self.origin, self.host.wall_ms())?;
            self.rest.drain(..lines.taken);
            self.position.next += lines.taken as u64;
            if last {
                self.position.end = Some(self.position.next);
            }
            if lines.taken > 0 || last {
                return Ok(chunk(lines, self.position.clone(), last.then_some(0)));
            }
        }
    }
}

/// Blocks its own thread in each read; ends when nobody takes what it reads.
async fn read_all(send: mpsc::Sender<io::Result<Vec<u8>>>) {
    let mut input = io::stdin();
    loop {
        let mut buffer = vec![0; limits::LINE_BUFFER];
        let read = match input.read(&mut buffer) {
            Ok(0) => return,
            Ok(count) => {
                buffer.truncate(count);
                Ok(buffer)
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => Err(error),
        };
        let failed = read.is_err();
        if send.send(read).await.is_err() || failed {
            return;
        }
    }
}

impl Reader for StandardReader {
    fn next(&mut self) -> BoxFuture<'_, Result<Chunk, SourceError>> {
        Box::pin(self.read())
    }
}
