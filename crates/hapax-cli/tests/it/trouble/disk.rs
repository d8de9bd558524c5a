//! A disk without room: a small file system of memory, in a mount name space that goes with the run where the machine
//! has one for us.

use super::*;
use crate::harness::binary;
use std::{
    fs::File,
    io::{self, Write},
    process::Command,
    time::Instant,
};

/// The checkpoint store of a job on a disk of its own.
struct Disk {
    job: Job,
    /// Where the disk is mounted.
    mount: PathBuf,
    /// What puts a run into a mount name space of its own; nothing where none is to be had.
    space: &'static [&'static str],
}

/// Name spaces from the best to the last: without the rights of root a user name space of one's own may mount; root in
/// a changed root may do neither, and mounts without one.
const SPACES: [&[&str]; 2] = [&["unshare", "--mount"], &["unshare", "--mount", "--map-root-user"]];

fn space() -> &'static [&'static str] {
    let works = |space: &&[&str]| {
        let tried = Command::new(space[0]).args(&space[1..]).arg("true").output();
        tried.expect("unshare (util-linux) mounts the small disk of this test").status.success()
    };
    SPACES.into_iter().find(works).unwrap_or(&[])
}

impl Drop for Disk {
    fn drop(&mut self) {
        self.unmount();
    }
}

/// Room for some hundred slots.
const SIZE: &str = "1m";

/// More blocks of 4 KiB than it holds: another disk is not filled by mistake.
const MOST_BLOCKS: usize = 1_024;

impl Disk {
    fn new(mut job: Job, source: &str) -> Self {
        let mount = job.folder.join("disk");
        fs::create_dir(&mount).unwrap();
        // An absolute link on the way would lead out of the run's name space.
        let mount = fs::canonicalize(mount).unwrap();
        job.store = mount.join("store");
        job.write(source);
        Self { job, mount, space: space() }
    }

    /// Starts a run whose disk is full where `full` says so.
    fn start(&self, name: &str, full: bool, arguments: &[&str]) -> Run {
        let fill = if full { "cat /dev/zero > \"$0/ballast\" 2> /dev/null;" } else { "" };
        let script = format!("mount -t tmpfs -o size={SIZE} tmpfs \"$0\" || exit 99; {fill} exec \"$@\"");
        self.unmount();
        let (program, space) = self.space.split_first().unwrap_or((&"env", &[]));
        let mut command = Command::new(program);
        command.args(space);
        command.args(["sh", "-c", &script]).arg(&self.mount).arg(binary());
        command.args(["run", "--json"]).arg(&self.job.file).args(arguments);
        Run::of(command, &self.job.folder.join(format!("{name}.log"))).unwrap()
    }

    /// Takes the disk of the run before away, if it did not go with it.
    fn unmount(&self) {
        if self.space.is_empty() {
            let _ = Command::new("umount").arg("--lazy").arg(&self.mount).output();
        }
    }

    /// A file on the disk as the run sees it.
    fn path(&self, run: &mut Run, name: &str) -> PathBuf {
        let root = PathBuf::from(format!("/proc/{}/root", run.process().id()));
        root.join(self.mount.strip_prefix("/").unwrap()).join(name)
    }

    /// Writes until nothing more fits.
    fn fill(&self, run: &mut Run) {
        let mut file = File::create(self.path(run, "ballast")).unwrap();
        let filled = (0..MOST_BLOCKS).find_map(|_| file.write_all(&[0; 4096]).err());
        assert_eq!(filled.expect("the disk is a small one").kind(), io::ErrorKind::StorageFull);
    }

    fn free(&self, run: &mut Run) {
        fs::remove_file(self.path(run, "ballast")).unwrap();
    }
}

#[test]
#[cfg_attr(not(target_os = "linux"), ignore = "needs mount name spaces")]
fn a_full_disk_is_waited_for_and_the_output_is_exact() {
    wait_for_a_full_disk("disk-full", &[]);
}

#[test]
#[cfg_attr(not(target_os = "linux"), ignore = "needs mount name spaces")]
fn a_disk_without_room_for_a_journal_is_waited_for_and_the_output_is_exact() {
    wait_for_a_full_disk("disk-journal", &["--set", "sink.0.journal=true"]);
}

fn wait_for_a_full_disk(name: &str, arguments: &[&str]) {
    const COUNT: u64 = 6_000;
    let source = generator(COUNT, 500);
    let disk = Disk::new(Job::new(name, &source), &source);
    let mut run = disk.start("run", false, arguments);
    disk.job.await_committed(&mut run, 200);
    disk.fill(&mut run);
    let full = |run: &mut Run| Ok(run.output()?.contains("the checkpoint store is full"));
    run.until("says that the store is full", PATIENCE, full).unwrap();
    let another_run = |run: &mut Run| Ok(run.output()?.contains("E0601"));
    run.until("ends the run and begins another", PATIENCE, another_run).unwrap();
    assert!(run.process().try_wait().unwrap().is_none());
    disk.free(&mut run);
    assert_eq!(Ended::of(run).done()["finished"], true);
    disk.job.is_exact(COUNT);
}

#[test]
#[cfg_attr(not(target_os = "linux"), ignore = "needs mount name spaces")]
fn a_disk_that_stays_full_at_the_start_is_exit_code_6() {
    let source = generator(10, 10);
    let disk = Disk::new(Job::new("disk-start", &source), &source);
    // Whether or not the store's own patience ends before that of the start.
    for (timeout, parts) in [("2s", ["writable and not full"]), ("8s", ["the checkpoint store is full"])] {
        let began = Instant::now();
        let ended = Ended::of(disk.start("run", true, &["--set", &format!("run.start_timeout={timeout}")]));
        ended.says(6, "E0601", &[&disk.job.name]);
        ended.says(6, "E0601", &parts);
        assert!(began.elapsed() < Duration::from_secs(14), "{timeout}: {:?}", began.elapsed());
    }
    assert!(disk.job.traces().0.is_empty());
}
