//! The process table's lines: processes one below the other, or as a tree in which the ranks of a job stand together.

use std::collections::{HashMap, HashSet};

use crate::source::processes::ProcessRow;

/// One line of the table.
#[derive(Clone, Debug)]
pub(super) enum Shown<'a> {
    /// A process, at its depth in the tree.
    Process(usize, &'a ProcessRow),
    /// The ranks of one job together: processes on the GPUs that have the same parent (torchrun, a launcher).
    Job(u32, Vec<&'a ProcessRow>),
}

impl<'a> Shown<'a> {
    /// The process, if it is one.
    pub(super) fn process(&self) -> Option<&'a ProcessRow> {
        match self {
            Shown::Process(_, row) => Some(row),
            Shown::Job(..) => None,
        }
    }
}

/// Parents before their children, each family where its first member stands. Processes whose common parent is not on a
/// GPU itself are the ranks of one job: they stand under a line with their sums.
pub(super) fn tree<'a>(rows: &[&'a ProcessRow]) -> Vec<Shown<'a>> {
    let shown: HashMap<u32, &ProcessRow> = rows.iter().map(|r| (r.pid, *r)).collect();
    let parent = |row: &ProcessRow| row.facts.value().map(|f| f.parent).filter(|p| *p != row.pid);
    let mut children: HashMap<u32, Vec<&'a ProcessRow>> = HashMap::new();
    for row in rows {
        // The first process adopts orphans: they are no job.
        if let Some(parent) = parent(row).filter(|p| *p > 1) {
            children.entry(parent).or_default().push(row);
        }
    }
    let mut out = Vec::new();
    let mut done = HashSet::new();
    for row in rows {
        let siblings = match parent(row) {
            Some(parent) if shown.contains_key(&parent) => continue,
            Some(parent) => children.get(&parent).filter(|s| s.len() > 1).map(|s| (parent, s)),
            None => None,
        };
        match siblings {
            Some((job, ranks)) if !done.contains(&row.pid) => {
                out.push(Shown::Job(job, ranks.clone()));
                for rank in ranks {
                    descend(1, rank, &children, &mut done, &mut out);
                }
            }
            _ => descend(0, row, &children, &mut done, &mut out),
        }
    }
    // Whoever is its own ancestor (a PID that was used again between two reads) is still shown.
    out.extend(
        rows.iter()
            .filter(|r| !done.contains(&r.pid))
            .map(|r| Shown::Process(0, r)),
    );
    out
}

/// A process and everything below it.
fn descend<'a>(
    depth: usize,
    row: &'a ProcessRow,
    children: &HashMap<u32, Vec<&'a ProcessRow>>,
    done: &mut HashSet<u32>,
    out: &mut Vec<Shown<'a>>,
) {
    let mut todo = vec![(depth, row)];
    while let Some((depth, row)) = todo.pop() {
        if done.insert(row.pid) {
            out.push(Shown::Process(depth, row));
            // A launcher that is in the table itself (torchrun holds the device files open): its ranks' sum stands under it.
            let below = children.get(&row.pid).into_iter().flatten();
            let ranks: Vec<&ProcessRow> = below.copied().filter(|c| !c.devices.is_empty()).collect();
            if ranks.len() > 1 {
                out.push(Shown::Job(row.pid, ranks));
            }
            for child in children.get(&row.pid).into_iter().flatten().rev() {
                todo.push((depth + 1, child));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reading::{Reading, WhyKind};
    use crate::source::host::facts::{ProcessFacts, ProcessKey, ProcessState};
    use crate::source::processes::DeviceShare;

    fn row(pid: u32, parent: u32) -> ProcessRow {
        ProcessRow {
            pid,
            facts: Reading::Is(ProcessFacts {
                key: ProcessKey { pid, start_ticks: 1 },
                parent,
                state: ProcessState::Sleeping,
                age: Reading::not_yet(),
                uid: Reading::Is(0),
                name: "python3".into(),
                command: "python3 train.py".into(),
                ns_pids: vec![pid],
            }),
            user: Reading::Is("root".into()),
            container: None,
            devices: Vec::new(),
            holds: Vec::new(),
            rss: Reading::missing(WhyKind::Absent, "-"),
            pss: Reading::missing(WhyKind::Absent, "-"),
            family: None,
            note: None,
        }
    }

    #[test]
    fn ranks_of_one_launcher_stand_under_their_sum() {
        let all = [row(10, 9), row(11, 9), row(20, 1), row(21, 20), row(30, 1)];
        let rows: Vec<&ProcessRow> = all.iter().collect();
        let drawn: Vec<String> = tree(&rows)
            .iter()
            .map(|s| match s {
                Shown::Process(depth, r) => format!("{depth}:{}", r.pid),
                Shown::Job(parent, ranks) => format!("job {parent}: {}", ranks.len()),
            })
            .collect();
        assert_eq!(drawn, ["job 9: 2", "1:10", "1:11", "0:20", "1:21", "0:30"]);
    }

    #[test]
    fn ranks_of_a_launcher_in_the_table_have_their_sum_under_it() {
        let rank = |pid| ProcessRow {
            devices: vec![DeviceShare {
                index: 0,
                uuid: "GPU-0".into(),
                vram: Reading::not_yet(),
                kinds: Vec::new(),
                sm_percent: Reading::not_yet(),
            }],
            ..row(pid, 20)
        };
        let all = [row(20, 5), rank(21), rank(22), row(23, 20)];
        let rows: Vec<&ProcessRow> = all.iter().collect();
        let drawn: Vec<String> = tree(&rows)
            .iter()
            .map(|s| match s {
                Shown::Process(depth, r) => format!("{depth}:{}", r.pid),
                Shown::Job(parent, ranks) => format!("job {parent}: {}", ranks.len()),
            })
            .collect();
        assert_eq!(drawn, ["0:20", "job 20: 2", "1:21", "1:22", "1:23"]);
    }

    #[test]
    fn a_circle_of_parents_is_still_shown() {
        let all = [row(10, 11), row(11, 10)];
        let rows: Vec<&ProcessRow> = all.iter().collect();
        assert_eq!(tree(&rows).len(), 2);
    }
}
