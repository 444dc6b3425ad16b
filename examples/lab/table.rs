//! Tables, for people and as CSV.

use std::fmt::Write;

pub(crate) struct Table {
    /// Of its file, without the ending.
    pub(crate) name: String,
    title: String,
    head: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn new(name: impl Into<String>, title: impl Into<String>, head: &[&str]) -> Table {
        let head = head.iter().map(|&cell| cell.to_owned()).collect();
        Table { name: name.into(), title: title.into(), head, rows: Vec::new() }
    }

    /// Adds a row with as many cells as the head has.
    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        let row: Vec<_> = cells.into_iter().collect();
        assert_eq!(row.len(), self.head.len(), "{}: a row has other columns than the head", self.name);
        self.rows.push(row);
    }

    /// Columns side by side: words to the left, numbers to the right.
    pub(crate) fn render(&self) -> String {
        let lines = || std::iter::once(&self.head).chain(&self.rows);
        let widths: Vec<_> = (0..self.head.len())
            .map(|column| lines().map(|line| line[column].chars().count()).max().unwrap_or_default())
            .collect();
        let words: Vec<_> = (0..self.head.len())
            .map(|column| column == 0 || self.rows.iter().any(|row| is_word(&row[column])))
            .collect();
        let mut text = format!("{}\n", self.title);
        for (number, line) in lines().enumerate() {
            let cells = line.iter().zip(&widths).zip(&words).map(|((cell, &width), &word)| {
                if word { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
            });
            let _ = writeln!(text, "  {}", cells.collect::<Vec<_>>().join("  ").trim_end());
            if number == 0 {
                let _ = writeln!(text, "  {}", "-".repeat(widths.iter().sum::<usize>() + 2 * (widths.len() - 1)));
            }
        }
        text
    }

    /// RFC 4180, with the line ends of Unix.
    pub(crate) fn csv(&self) -> String {
        let mut text = String::new();
        for line in std::iter::once(&self.head).chain(&self.rows) {
            let cells: Vec<_> = line.iter().map(|cell| quoted(cell)).collect();
            text += &cells.join(",");
            text.push('\n');
        }
        text
    }
}

fn is_word(cell: &str) -> bool {
    cell.chars().next().is_some_and(char::is_alphabetic)
}

fn quoted(cell: &str) -> String {
    if cell.contains(['"', ',', '\n', '\r']) { format!("\"{}\"", cell.replace('"', "\"\"")) } else { cell.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn csv_keeps_what_separates_apart() {
        let mut table = Table::new("t", "T", &["a", "b, c"]);
        table.row(["say \"x\"".to_owned(), "two\nlines".to_owned()]);
        assert_eq!(table.csv(), "a,\"b, c\"\n\"say \"\"x\"\"\",\"two\nlines\"\n");
    }
}
