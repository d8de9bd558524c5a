//! docs/protocol.md: it has every crash point that a run can be told to die at. Its diagrams are compared with the machines
//! by `hapax-commit`, in `tests/it/diagram`.

use super::page;
use hapax::crash::Point;

pub(super) const PAGE: &str = "docs/protocol.md";

#[test]
fn every_crash_point_stands_in_a_table_of_its_page() {
    let page = page(PAGE);
    let is_there = |point: &Point| page.lines().any(|line| line.starts_with(&format!("| `{point}` |")));
    let missing: Vec<Point> = Point::all().filter(|point| !is_there(point)).collect();
    assert_eq!(missing, []);
}
