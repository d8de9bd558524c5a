//! Positions that have no room beside an offset stand in an object of the checkpoint store (H5).

use super::{Case, Mode, On, PATIENCE, Point, judges};
use crate::command_line::Ended;
use std::{fs, path::PathBuf};
use xtask::judge::{Audit, Expected};

const SPLITS: u32 = 500;
const COUNT: u64 = 3_000;
const TOP: &str = "transaction_timeout = \"60s\"\n[checkpoint]\nstore = \"file://PATH/store\"\ninterval = \"60ms\"\n\
                   [run]\nshards = 1\n";

impl Case {
    /// One shard with so many splits that the default of 4,096 bytes does not take their positions.
    fn of_many(name: &str, version: i16) -> Self {
        let case = Self::new(name, On::Ours(version), "");
        let source = format!(
            "[[source]]\ngenerator = {{ count = {COUNT}, rate = 3000, partitions = {SPLITS}, value = '{{\"id\":$id}}' }}\n"
        );
        case.write(TOP, &source);
        case
    }

    fn objects(&self) -> Vec<PathBuf> {
        let folder = self.positions();
        let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        files.filter(|path| !path.file_name().unwrap().to_str().unwrap().starts_with('.')).collect()
    }

    fn positions(&self) -> PathBuf {
        self.folder.join("store").join(&self.job).join("1/positions")
    }

    /// The name that the one bookmark points to.
    fn pointer(&self) -> String {
        let offsets = self.offsets();
        assert_eq!(offsets.len(), 1, "{offsets:?}");
        let mark: serde_json::Value =
            serde_json::from_str(offsets[0].metadata.strip_prefix("hapax 1 ").unwrap()).unwrap();
        mark["at"]["object"].as_str().unwrap_or_else(|| panic!("no pointer: {mark}")).to_owned()
    }

    fn assert_all_out(&self, when: &str) {
        self.await_nothing_open(when);
        let audit = Audit {
            topics: vec![self.sink()],
            expected: Expected::Range { from: 0, count: COUNT },
            field: "id".to_owned(),
            source_partitions: SPLITS,
            value: None,
        };
        let report = judges().reader.audit(&self.bootstrap, &audit).unwrap();
        assert!(report.is_exact(), "{when}: {report:?}");
    }

    fn ends(&self, when: &str) -> Ended {
        let ended = self.run(&[]);
        assert_eq!(ended.code, Some(0), "{when}: {}", ended.err);
        self.assert_all_out(when);
        ended
    }
}

#[test]
fn a_shard_of_500_splits_dies_at_every_point_and_loses_nothing() {
    for version in [0, 2] {
        let when = format!("many splits v{version}");
        let case = Case::of_many(&when, version);
        let mut killed = 0;
        for point in Point::TRANSACTION.into_iter().chain([Point::K1pPositionsPut]) {
            let ended = case.run(&["--crash-at", &format!("{point}:2")]);
            assert!(matches!(ended.code, None | Some(0)), "{point}: {}", ended.err);
            killed += u32::from(ended.code.is_none());
        }
        assert!(killed >= 4, "{killed} kills");
        case.ends(&when);
        assert!(case.positions().join(case.pointer()).exists());
    }
}

/// What it has put is nobody's once its successor has gone on.
#[test]
fn a_run_that_slept_with_its_object_put_changes_nothing_behind_its_successor() {
    for (version, times_out) in [(0, false), (0, true), (2, false), (2, true)] {
        let case = Case::of_many(&format!("asleep v{version} {times_out}"), version);
        let mut asleep = case.start("asleep", &["--crash-at", "K1p:2:stop"]);
        Case::await_crash(&mut asleep, Point::K1pPositionsPut, Mode::Stop);
        if times_out {
            case.let_time_out();
        }
        case.ends("its successor");
        let (pointer, objects) = (case.pointer(), case.objects());
        asleep.process().signal("CONT").unwrap();
        asleep.demand_exit(5, PATIENCE).unwrap();
        case.assert_all_out("awake");
        assert_eq!((case.pointer(), case.objects()), (pointer.clone(), objects));
        assert!(case.positions().join(pointer).exists());
    }
}

/// The offsets never came: nothing points to the object, and a later run removes it behind its own.
#[test]
fn an_object_whose_offsets_were_never_sent_is_removed_behind_a_later_epoch() {
    for version in [0, 2] {
        let case = Case::of_many(&format!("orphan v{version}"), version);
        assert_eq!(case.run(&["--crash-at", "K1p:2"]).code, None);
        let pointer = case.pointer();
        let orphans: Vec<PathBuf> =
            case.objects().into_iter().filter(|path| !path.ends_with(&pointer)).collect();
        assert!(!orphans.is_empty(), "its put was done: {:?}", case.objects());
        case.ends("orphan");
        assert!(orphans.iter().all(|path| !path.exists()), "{:?}", case.objects());
        assert!(case.objects().len() <= 2, "{:?}", case.objects());
    }
}

#[test]
fn an_object_that_is_gone_or_damaged_stops_the_job_with_its_name() {
    let case = Case::of_many("gone", 2);
    assert_eq!(case.run(&["--crash-at", "K5:2"]).code, None);
    let (pointer, bytes) = (case.pointer(), fs::read(case.positions().join(case.pointer())).unwrap());
    let path = case.positions().join(&pointer);
    fs::write(&path, &bytes[..bytes.len() - 1]).unwrap();
    let ended = case.run(&[]);
    ended.says(4, "E0420");
    ended.says(4, &pointer);
    fs::remove_file(&path).unwrap();
    let ended = case.run(&[]);
    ended.says(4, &format!("{pointer}, which is not there"));
    fs::write(&path, &bytes).unwrap();
    case.ends("back again");
}

/// What stands in the folder's place is a file, so that nothing can be put there; and then the folder is back.
#[test]
fn a_store_that_does_not_take_the_object_ends_the_run_without_loss() {
    for version in [0, 2] {
        let case = Case::of_many(&format!("refusing v{version}"), version);
        let mut run = case.start("run", &["--crash-at", "K1p:3:stop"]);
        Case::await_crash(&mut run, Point::K1pPositionsPut, Mode::Stop);
        let (folder, aside) = (case.positions(), case.folder.join("aside"));
        fs::rename(&folder, &aside).unwrap();
        fs::write(&folder, "not a folder").unwrap();
        run.process().signal("CONT").unwrap();
        let refused =
            |log: &str| log.contains("putting positions into") || log.contains("reading positions from");
        run.until("is refused", PATIENCE, |run| Ok(refused(&run.output()?))).unwrap();
        let before = case.pointer();
        assert!(aside.join(&before).exists(), "nothing is committed that points to what is not there");
        fs::remove_file(&folder).unwrap();
        fs::rename(&aside, &folder).unwrap();
        run.demand_exit(0, PATIENCE).unwrap();
        case.assert_all_out("taken again");
    }
}

#[test]
fn a_job_whose_positions_are_in_its_store_is_refused_without_it_and_goes_on_with_it() {
    let case = Case::of_many("taken away", 2);
    assert_eq!(case.run(&["--crash-at", "K5:2"]).code, None);
    let (pointer, ids) = (case.pointer(), case.listed());
    case.take_store();
    let incidents = format!("checkpoint.incidents={}", case.folder.join("incidents").display());
    let ended = case.run(&["--set", &incidents]);
    ended.says(4, "E0420");
    ended.says(4, &format!("{pointer} of its checkpoint store, and the file names no store any more"));
    assert_eq!((case.pointer(), case.listed()), (pointer, ids), "nothing was touched");
    case.give_store();
    case.ends("with its store");
}
