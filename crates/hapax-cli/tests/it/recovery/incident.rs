//! What an incident tells a person, in its file and in the log: who, where, what is known by whom, what is lost or in
//! doubt, and what settles it.

use super::{Case, Left, On, PARTITIONS, allowed};
use crate::command_line::hapax;
use serde_json::Value;

/// One lane committed, one aborted by hand, the others open, and a list that may commit nothing.
#[test]
fn an_incident_names_run_epoch_lanes_witnesses_records_and_commands() {
    let case = Case::new("incident", On::Ours(2));
    case.die(&Left::Mixed.crash_at(), &[]);
    let states = in_doubt(&case);
    assert_eq!(states.len(), PARTITIONS as usize, "{states:?}");
    let open: Vec<&String> =
        states.iter().filter(|(_, told)| told.contains("Ongoing")).map(|(id, _)| id).collect();
    let file = case.bench.path("pipeline.toml");
    let (aborted, open) = open.split_first().expect("some lanes are open");
    let ended = hapax(&["txn", "abort", file.to_str().unwrap(), aborted, "--decided"]);
    assert_eq!(ended.code, Some(0), "{}", ended.err);

    let ended = case.run(&["rewind"]);
    ended.says(4, "E0404");
    let incidents = case.incidents();
    let incident = incidents.last().unwrap();
    assert_eq!((&incident["code"], &incident["job"]), (&"E0404".into(), &case.job.as_str().into()));
    assert_eq!((&incident["epoch"], &incident["allowed_once"]), (&3.into(), &Value::Array(Vec::new())));
    assert!(incident["run"].as_u64().unwrap() > 1, "{incident}");
    let lanes = incident["in_doubt"].as_array().unwrap();
    assert_eq!(lanes.len(), PARTITIONS as usize);
    let next = incident["next"].to_string();
    for lane in lanes {
        let id = lane["handle"]["transactional_id"].as_str().unwrap();
        let (fate, state) = match states.iter().find(|(known, _)| known == id).unwrap() {
            _ if id == aborted.as_str() => ("aborted by the broker", "CompleteAbort"),
            (_, told) if told.contains("Ongoing") => ("open", "Ongoing"),
            _ => ("committed", "CompleteCommit"),
        };
        assert_eq!(lane["fate"], fate, "{lane}");
        let evidence = lane["evidence"][0].as_str().unwrap();
        assert!(evidence.starts_with(&format!("DescribeTransactions: {state} ")), "{lane}");
        let part = &lane["handle"]["partitions"][0];
        let records = lane["records"].as_u64().unwrap();
        assert!(records > 0 && part["count"].as_u64() == Some(records), "{lane}");
        assert!(next.contains(&format!("hapax txn describe FILE --id {id}")), "{next}");
        let commit = format!("hapax txn commit FILE {id}");
        assert_eq!(next.contains(&commit), open.iter().any(|open| *open == id), "{next}");
        let (first, last) = (&part["first_offset"], &part["last_offset"]);
        let said = format!(": {fate} [{evidence}");
        let of = format!("{records} records: {}-{} {first}..{last}", case.topic, part["partition"]);
        assert!(ended.err.contains(&said) && ended.err.contains(&of), "{said}, {of}: {}", ended.err);
    }
    let passed = incident["passed_over"].to_string();
    assert!(passed.contains("rewind: some lane is committed"), "{passed}");
    assert!(next.contains("hapax run FILE --recover resume"), "{next}");
    let told = ended.err.lines().any(|line| line.contains("passed over: rewind: some lane is committed"));
    assert!(told, "{}", ended.err);
    let line = format!("job {}, run {}: epoch 3 is decided", case.job, incident["run"]);
    assert!(ended.err.contains(&line) && ended.err.contains("; next: keep the store"), "{}", ended.err);

    let [set, list] = allowed(&["rewind"]);
    let ended = case.bench.run(&["--json", &set, &list, "--recover", "resume", "--recover", "abandon"]);
    assert_eq!(ended.code, Some(0), "{}", ended.err);
    let incidents = case.incidents();
    let given_up = incidents.iter().find(|one| one["code"] == "E0409").expect("records were given up");
    assert_eq!((&given_up["epoch"], given_up["in_doubt"].as_array().unwrap().len()), (&3.into(), 1));
    assert_eq!(given_up["in_doubt"][0]["handle"]["transactional_id"], aborted.as_str());
    assert_eq!(given_up["allowed_once"], serde_json::json!(["resume", "abandon"]));
    let message = given_up["message"].as_str().unwrap();
    assert!(message.contains("--recover abandon allowed this start"), "{message}");
    assert!(ended.err.contains("given up: ") && ended.err.contains("E0409"), "{}", ended.err);
    let summary: Value = serde_json::from_str(ended.out.lines().last().unwrap()).unwrap();
    assert_eq!(summary["passed_over"]["rewind does-not-fit"], 1, "{summary}");
}

/// The decided transactions, each with what its coordinator tells.
fn in_doubt(case: &Case) -> Vec<(String, String)> {
    let file = case.bench.path("pipeline.toml");
    let described = hapax(&["txn", "describe", file.to_str().unwrap(), "--json"]);
    let lines = described.out.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let decided = lines.filter(|one| one["chain"]["in-doubt"].is_object());
    decided.map(|one| (one["id"].as_str().unwrap().to_owned(), one["coordinator"].to_string())).collect()
}
