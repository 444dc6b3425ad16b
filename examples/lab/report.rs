//! What an experiment has found: tables, pictures, and claims that hold or do not.

use std::fmt;
use std::fs;
use std::io::{self, Write};
use std::path::Path;

use crate::figure::Figure;
use crate::table::Table;

/// The result of one experiment.
pub(crate) struct Report {
    pub(crate) tables: Vec<Table>,
    pub(crate) figures: Vec<Figure>,
    pub(crate) checks: Vec<Check>,
}

/// A claim, and whether this run bears it out.
pub(crate) struct Check {
    claim: &'static str,
    found: String,
    pub(crate) holds: bool,
}

impl Check {
    pub(crate) fn new(claim: &'static str, found: impl Into<String>, holds: bool) -> Check {
        Check { claim, found: found.into(), holds }
    }
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.claim, self.found)
    }
}

impl Report {
    /// For people.
    pub(crate) fn print(&self, out: &mut impl Write) -> io::Result<()> {
        for table in &self.tables {
            writeln!(out, "{}", table.render())?;
        }
        for check in &self.checks {
            writeln!(out, "  {} {check}", if check.holds { "holds:" } else { "FAILS:" })?;
        }
        Ok(())
    }

    pub(crate) fn holds(&self) -> bool {
        self.checks.iter().all(|check| check.holds)
    }

    /// Writes a CSV for each table, and for each figure an SVG and a CSV of what is drawn.
    ///
    /// Returns the names of the files.
    pub(crate) fn write(&self, folder: &Path) -> io::Result<Vec<String>> {
        fs::create_dir_all(folder)?;
        let mut files = Vec::new();
        for table in &self.tables {
            files.push((format!("{}.csv", table.name), table.csv()));
        }
        for figure in &self.figures {
            files.push((format!("{}.svg", figure.name), figure.svg()));
            files.push((format!("{}-plot.csv", figure.name), figure.table().csv()));
        }
        for (name, text) in &files {
            fs::write(folder.join(name), text)?;
        }
        Ok(files.into_iter().map(|(name, _)| name).collect())
    }
}
