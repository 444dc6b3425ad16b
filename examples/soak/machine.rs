//! What the process holds of the machine. Linux tells; elsewhere it is not known, and not looked at.

use std::fs;

/// The memory that is in use, in KiB.
pub(crate) fn memory() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB")?.parse().ok())
}

/// How many files and sockets are open.
pub(crate) fn files() -> Option<usize> {
    // The folder itself is open while it is read.
    Some(fs::read_dir("/proc/self/fd").ok()?.count().saturating_sub(1))
}

/// How many tasks of this runtime are alive.
pub(crate) fn tasks() -> usize {
    tokio::runtime::Handle::current().metrics().num_alive_tasks()
}
