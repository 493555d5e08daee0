//! The control group that limits a process's memory: v2 (memory.max), v1 (memory.limit_in_bytes) or both mounted side by
//! side. Every group on the path counts: a limit far up binds as hard as one on the group itself (users.md 2.1).

use std::path::{Component, Path, PathBuf};

use procfs::FromBufRead;
use procfs::process::MountInfo;
use procfs::{ProcessCGroup, ProcessCGroups};

use super::{read_whole, why_of};
use crate::reading::{Reading, WhyKind};
use crate::units::Bytes;

/// The limit that binds first, with what its group uses now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CgroupLimit {
    /// The smallest limit on the path.
    pub limit: Bytes,
    /// What the group that carries it uses (memory.current or memory.usage_in_bytes).
    pub used: Reading<Bytes>,
    /// The group's folder.
    pub group: PathBuf,
}

/// Version 1 writes "no limit" as the largest page-aligned number; anything in the upper half of its range means none.
const V1_UNLIMITED: u64 = 1 << 62;

/// The smallest memory limit over all groups of `pid`, as far as this mount namespace shows them. `Absent` when no group
/// has a limit ("max").
pub fn smallest_limit(proc_root: &Path, pid: u32) -> Reading<CgroupLimit> {
    let groups = match read_whole(&proc_root.join(pid.to_string()).join("cgroup")) {
        Ok(text) => ProcessCGroups::from_buf_read(text.as_slice()),
        Err(e) => return Reading::Missing(why_of(&e, pid, "cgroup")),
    };
    let (Ok(groups), Some(mounts)) = (groups, group_mounts(proc_root)) else {
        return Reading::missing(
            WhyKind::Unknown,
            "the list of control groups has a form that is not known here",
        );
    };
    let mut best: Option<CgroupLimit> = None;
    let mut seen = false;
    for group in &groups.0 {
        let Some(version) = Version::of(group) else { continue };
        for (folder, top) in folders(&mounts, group, version) {
            seen = true;
            for level in folder.ancestors().take_while(|level| level.starts_with(&top)) {
                if let Some(limit) = version.limit_of(level)
                    && best.as_ref().is_none_or(|b| limit < b.limit)
                {
                    best = Some(CgroupLimit {
                        limit,
                        used: version.used_by(level),
                        group: level.to_path_buf(),
                    });
                }
            }
        }
    }
    match best {
        Some(limit) => Reading::Is(limit),
        None if seen => Reading::missing(WhyKind::Absent, "no control group limits its memory"),
        None => Reading::missing(WhyKind::Absent, "its control group is not visible from here"),
    }
}

/// The mounts of control groups in this mount namespace; a line of another form is left out.
fn group_mounts(proc_root: &Path) -> Option<Vec<MountInfo>> {
    let text = read_whole(&proc_root.join("self/mountinfo")).ok()?;
    let text = String::from_utf8_lossy(&text);
    let groups = text.lines().filter(|line| line.contains(" - cgroup"));
    Some(groups.filter_map(|line| MountInfo::from_line(line).ok()).collect())
}

/// Which generation of control groups a line of /proc/PID/cgroup speaks of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    V1,
    V2,
}

impl Version {
    /// The version of a group's line, if it can limit memory.
    fn of(group: &ProcessCGroup) -> Option<Self> {
        if group.hierarchy == 0 {
            Some(Version::V2)
        } else {
            group.controllers.iter().any(|c| c == "memory").then_some(Version::V1)
        }
    }

    /// The limit set on one group, if there is one.
    fn limit_of(self, folder: &Path) -> Option<Bytes> {
        match self {
            Version::V2 => number(&folder.join("memory.max")),
            Version::V1 => number(&folder.join("memory.limit_in_bytes")).filter(|n| n.0 < V1_UNLIMITED),
        }
    }

    /// What one group uses now.
    fn used_by(self, folder: &Path) -> Reading<Bytes> {
        let file = match self {
            Version::V2 => "memory.current",
            Version::V1 => "memory.usage_in_bytes",
        };
        number(&folder.join(file)).map_or_else(
            || Reading::missing(WhyKind::Refused, format!("the control group's {file} cannot be read")),
            Reading::Is,
        )
    }
}

/// Where the group is to be seen: (its folder, the mount's top), over all mounts of its hierarchy. In a container the mount
/// shows a part of the tree only, and its `root` says which.
fn folders(mounts: &[MountInfo], group: &ProcessCGroup, version: Version) -> Vec<(PathBuf, PathBuf)> {
    mounts
        .iter()
        .filter(|m| match version {
            Version::V2 => m.fs_type == "cgroup2",
            Version::V1 => m.fs_type == "cgroup" && m.super_options.contains_key("memory"),
        })
        .filter_map(|m| {
            let inside = Path::new(&group.pathname).strip_prefix(&m.root).ok()?;
            // "/../x" lies beside this namespace's part of the tree: none of its ancestors is to be seen here.
            let visible = inside.components().all(|c| matches!(c, Component::Normal(_)));
            visible.then(|| (m.mount_point.join(inside), m.mount_point.clone()))
        })
        .collect()
}

/// A file that holds one number; `max` and anything else is none.
fn number(path: &Path) -> Option<Bytes> {
    let text = read_whole(path).ok()?;
    std::str::from_utf8(&text).ok()?.trim().parse().ok().map(Bytes)
}
