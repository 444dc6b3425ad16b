//! An SVG document in the making: shapes, and text that is escaped.
//!
//! Without a background, in colours that can be read on white and, where the reader prefers dark, on dark.

use std::fmt::Write;

pub(crate) struct Svg {
    body: String,
    width: f64,
}

/// Where a text begins, or what it ends at.
#[derive(Clone, Copy)]
pub(crate) enum Anchor {
    Start,
    Middle,
    End,
}

impl Svg {
    pub(crate) fn new(width: f64) -> Svg {
        Svg { body: String::new(), width }
    }

    pub(crate) fn text(&mut self, (x, y): (f64, f64), anchor: Anchor, class: &str, text: &str) {
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        let text = escaped(text);
        self.push(format_args!(
            "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" class=\"{class}\">{text}</text>"
        ));
    }

    pub(crate) fn line(&mut self, points: &[(f64, f64)], class: &str) {
        let path: Vec<_> = points.iter().map(|(x, y)| format!("{x:.1} {y:.1}")).collect();
        self.push(format_args!("<path d=\"M{}\" class=\"{class}\"/>", path.join("L")));
    }

    pub(crate) fn rect(&mut self, (left, top): (f64, f64), (right, bottom): (f64, f64), class: &str) {
        let (width, height) = (right - left, bottom - top);
        self.push(format_args!(
            "<rect x=\"{left:.1}\" y=\"{top:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" class=\"{class}\"/>"
        ));
    }

    pub(crate) fn dot(&mut self, (x, y): (f64, f64), class: &str) {
        self.push(format_args!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\" class=\"{class}\"/>"));
    }

    pub(crate) fn finish(self, title: &str, height: f64) -> String {
        let Svg { body, width } = self;
        let title = escaped(title);
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" \
             height=\"{height}\" role=\"img\">\n<title>{title}</title>\n<style>{STYLE}{}</style>\n{body}</svg>\n",
            colours()
        )
    }

    fn push(&mut self, element: std::fmt::Arguments<'_>) {
        let _ = writeln!(self.body, "{element}");
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// The classes `c0`, `c1` and so on: as a line, as a dot and as a bar. No two have the same dashes, and only the first, which is drawn
/// below all others, has none: where curves lie on each other all of them are seen.
fn colours() -> String {
    let mut style = String::new();
    for (index, (colour, dashes)) in COLOURS.iter().enumerate() {
        let _ = write!(style, "path.c{index}{{stroke:{colour};stroke-dasharray:{dashes}}}");
        let _ = write!(style, "circle.c{index},rect.c{index}{{fill:{colour}}}");
    }
    style
}

/// How many classes there are.
pub(crate) const CLASSES: usize = COLOURS.len();

const COLOURS: [(&str, &str); 9] = [
    ("#e5702a", "none"),
    ("#2f81f7", "10 5"),
    ("#2d9a49", "3 4"),
    ("#b58407", "12 4 3 4"),
    ("#a371f7", "16 9"),
    ("#d93a3f", "6 5"),
    ("#0f9ba8", "2 6"),
    ("#d0569c", "8 4 2 4 2 4"),
    ("#78828e", "5 10"),
];

/// Text has a contrast of 6 and more, and a rim of the page's colour where it lies on something.
const STYLE: &str = "\
    svg{--text:#57606a;--page:#fff}@media(prefers-color-scheme:dark){svg{--text:#a9b3be;--page:#0d1117}}\
    text{font-family:system-ui,'Segoe UI','Helvetica Neue',Arial,sans-serif;fill:#57606a;fill:var(--text)}\
    .title{font-size:19px;font-weight:600}.label{font-size:13px}.tick,.value{font-size:12px}.note{font-size:12px;font-weight:600}\
    .value{stroke:#fff;stroke:var(--page);stroke-width:4px;stroke-linejoin:round;paint-order:stroke}\
    path{fill:none;stroke-linejoin:round;stroke-width:2.4}.grid{stroke:#78828e;stroke-opacity:.25;stroke-width:1}\
    .axis{stroke:#78828e;stroke-opacity:.6;stroke-width:1}.shade{fill:#78828e;fill-opacity:.14}";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_cannot_end_its_element() {
        let mut svg = Svg::new(10.0);
        svg.text((0.0, 0.0), Anchor::Start, "label", "p < .5 & \"q\"</text>");
        let document = svg.finish("a < b", 10.0);
        assert!(document.contains("p &lt; .5 &amp; &quot;q&quot;&lt;/text&gt;</text>"), "{document}");
        assert!(document.contains("<title>a &lt; b</title>"));
    }
}
