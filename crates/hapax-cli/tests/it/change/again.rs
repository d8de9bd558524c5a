//! Records that are read again although a sink without transactions has them already (H35).

use super::scene::{On, Scene};

/// Longer than the transaction timeout of the job.
const TIMED_OUT_MS: i64 = 61_000;

#[test]
fn what_rewind_repeats_into_a_sink_without_transactions_is_said_and_counted() {
    for on in On::OURS {
        let mut scene = Scene::new("again", on, 2);
        scene.create("beside", 2);
        let beside = format!(
            "[[sink]]\ntopic = \"{}\"\npartition = \"keep\"\nguarantee = \"at-least-once\"\n",
            scene.topic("beside")
        );
        scene.write(&scene.pipeline(&["in"], &beside));
        scene.feed("in", 10);
        scene.catch_up(&["in"], &[]);
        scene.feed("in", 7);
        scene.die("K2:1", &[]);
        scene.broker().jump_clock(TIMED_OUT_MS).unwrap();
        let twice = scene.count("beside", &["in"]) - 20;
        let log = scene.catch_up(&["in"], &[]);
        assert!(log.contains("rewound"), "{log}");
        let said = log.lines().find(|line| line.contains("get them again")).expect("it is said");
        let offsets = said.split("offsets=").nth(1).and_then(|rest| rest.split_whitespace().next());
        let again: usize = offsets.expect("how many").parse().unwrap();
        // It had begun to read the next epoch when it died.
        assert!((1..=twice).contains(&again), "{again} of {twice}");
        let counted = |line: &str| line.contains(&format!("repeated={again} "));
        assert!(log.lines().any(counted), "{again} are not counted: {log}");
        scene.assert_copied("out", &["in"]);
        assert_eq!(scene.count("beside", &["in"]), 34 + twice, "what it had is there twice");
    }
}
