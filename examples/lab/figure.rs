//! Pictures: panels of curves, dots or bars over one another, with a legend for all of them.

use crate::axis::Axis;
use crate::svg::{Anchor, CLASSES, Svg};
use crate::table::Table;

/// A picture with panels from top to bottom.
pub(crate) struct Figure {
    /// Of its file, without the ending.
    pub(crate) name: String,
    title: String,
    subtitle: String,
    /// The names of the series, in the order of their colours.
    legend: Vec<String>,
    panels: Vec<Panel>,
}

/// Axes, and what is drawn between them.
pub(crate) struct Panel {
    title: String,
    x: Axis,
    y: Axis,
    series: Vec<Series>,
    height: f64,
    /// Times that are shaded, each with what it was.
    shades: Vec<(f64, f64, String)>,
}

struct Series {
    /// Its place in the legend.
    index: usize,
    form: Form,
    points: Vec<(f64, f64)>,
}

#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Form {
    Line,
    Dots,
    /// Beside those of the other series at the same place.
    Bars,
}

impl Figure {
    pub(crate) fn new(name: impl Into<String>, title: impl Into<String>, subtitle: impl Into<String>) -> Figure {
        let (legend, panels) = (Vec::new(), Vec::new());
        Figure { name: name.into(), title: title.into(), subtitle: subtitle.into(), legend, panels }
    }

    pub(crate) fn legend<'a>(mut self, names: impl IntoIterator<Item = &'a str>) -> Figure {
        self.legend = names.into_iter().map(str::to_owned).collect();
        self
    }

    pub(crate) fn panel(mut self, panel: Panel) -> Figure {
        self.panels.push(panel);
        self
    }

    /// All that is drawn, as numbers.
    pub(crate) fn table(&self) -> Table {
        let mut table = Table::new(format!("{}-plot", self.name), "", &["panel", "series", "x", "y"]);
        for panel in &self.panels {
            for series in &panel.series {
                for (x, y) in &series.points {
                    let name = self.legend.get(series.index).cloned().unwrap_or_default();
                    table.row([panel.title.clone(), name, x.to_string(), format!("{y:.6}")]);
                }
            }
        }
        table
    }

    pub(crate) fn svg(&self) -> String {
        let mut svg = Svg::new(WIDTH);
        svg.text((LEFT, 28.0), Anchor::Start, "title", &self.title);
        svg.text((LEFT, 50.0), Anchor::Start, "label", &self.subtitle);
        let mut top = self.draw_legend(&mut svg, 74.0) + 40.0;
        for panel in &self.panels {
            top += panel.head();
            panel.draw(&mut svg, top);
            top += panel.height + BETWEEN;
        }
        svg.finish(&self.title, top - 36.0)
    }

    /// Names beside a piece of their lines or bars, as many in a row as fit. Returns where it ends.
    fn draw_legend(&self, svg: &mut Svg, top: f64) -> f64 {
        let (mut x, mut y) = (LEFT, top);
        let bars = self.panels.iter().flat_map(|panel| &panel.series).any(|series| series.form == Form::Bars);
        for (index, name) in self.legend.iter().enumerate() {
            let width = 30.0 + LETTER * name.chars().count() as f64 + 22.0;
            if x + width > RIGHT && x > LEFT {
                (x, y) = (LEFT, y + 20.0);
            }
            if bars {
                svg.rect((x, y - 10.0), (x + 22.0, y + 1.0), &class(index));
            } else {
                svg.line(&[(x, y - 4.0), (x + 22.0, y - 4.0)], &class(index));
            }
            svg.text((x + 30.0, y), Anchor::Start, "label", name);
            x += width;
        }
        y
    }
}

impl Panel {
    pub(crate) fn new(title: impl Into<String>, x: Axis, y: Axis) -> Panel {
        Panel { title: title.into(), x, y, series: Vec::new(), height: PANEL_HEIGHT, shades: Vec::new() }
    }

    /// Higher, for curves that lie close to each other.
    pub(crate) fn tall(mut self) -> Panel {
        self.height = 1.7 * PANEL_HEIGHT;
        self
    }

    /// Adds what belongs to the name `index` of the legend.
    pub(crate) fn add(&mut self, index: usize, form: Form, points: Vec<(f64, f64)>) {
        self.series.push(Series { index, form, points });
    }

    pub(crate) fn shade(&mut self, from: f64, to: f64, what: impl Into<String>) {
        self.shades.push((from, to, what.into()));
    }

    /// What is needed above the curves to name the shades: within, curves would run through the names.
    fn head(&self) -> f64 {
        if self.shades.is_empty() { 0.0 } else { 18.0 }
    }

    fn draw(&self, svg: &mut Svg, top: f64) {
        let bottom = top + self.height;
        let x = |value: f64| LEFT + (RIGHT - LEFT) * self.x.place(value);
        let y = |value: f64| bottom - self.height * self.y.place(value);
        for (from, to, what) in &self.shades {
            svg.rect((x(*from), top - self.head()), (x(*to), bottom), "shade");
            svg.text((f64::midpoint(x(*from), x(*to)), top - 5.0), Anchor::Middle, "note", what);
        }
        svg.text(
            (LEFT, top - 10.0 - self.head()),
            Anchor::Start,
            "label",
            &format!("{} [{}]", self.title, self.y.label),
        );
        for (at, text) in self.y.ticks() {
            svg.line(&[(LEFT, y(*at)), (RIGHT, y(*at))], "grid");
            svg.text((LEFT - 8.0, y(*at) + 4.0), Anchor::End, "tick", text);
        }
        svg.line(&[(LEFT, bottom), (RIGHT, bottom)], "axis");
        for (at, text) in self.x.ticks() {
            svg.line(&[(x(*at), bottom), (x(*at), bottom + 5.0)], "axis");
            svg.text((x(*at), bottom + 19.0), Anchor::Middle, "tick", text);
        }
        svg.text((f64::midpoint(LEFT, RIGHT), bottom + 37.0), Anchor::Middle, "label", &self.x.label);
        self.draw_series(svg, &x, &y);
    }

    fn draw_series(&self, svg: &mut Svg, x: &dyn Fn(f64) -> f64, y: &dyn Fn(f64) -> f64) {
        let bars: Vec<_> = self.series.iter().filter(|series| series.form == Form::Bars).collect();
        let width = (x(1.0) - x(0.0)) * 0.7 / bars.len().max(1) as f64;
        for (place, series) in bars.iter().enumerate() {
            for &(at, value) in &series.points {
                let left = x(at) + width * (place as f64 - bars.len() as f64 / 2.0);
                let top = y(value);
                svg.rect((left + 2.0, top), (left + width - 2.0, y(f64::MIN)), &class(series.index));
                svg.text((left + width / 2.0, top - 5.0), Anchor::Middle, "value", &format!("{value:.3}"));
            }
        }
        // The first one has no gaps: it is drawn below the others.
        let mut series: Vec<_> = self.series.iter().collect();
        series.sort_by_key(|series| series.index);
        for Series { index, form, points } in series {
            let places: Vec<_> = points.iter().map(|&(at, value)| (x(at), y(value))).collect();
            match form {
                Form::Line if !places.is_empty() => svg.line(&places, &class(*index)),
                Form::Dots => places.iter().for_each(|&place| svg.dot(place, &class(*index))),
                Form::Line | Form::Bars => {}
            }
        }
    }
}

fn class(index: usize) -> String {
    format!("c{}", index % CLASSES)
}

const WIDTH: f64 = 960.0;
const LEFT: f64 = 66.0;
const RIGHT: f64 = 940.0;
const PANEL_HEIGHT: f64 = 190.0;
/// For the axis of a panel and the title of the next one.
const BETWEEN: f64 = 84.0;
/// What a letter of the legend needs, on average.
const LETTER: f64 = 6.9;
