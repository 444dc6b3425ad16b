//! The result as a picture: three panels over one axis of time, and the state of the breaker below.
//!
//! Written by hand and without a background, in colours that can be read on white and on black.

use std::time::Duration;

use steadfast::breaker::State;

use crate::client::Change;
use crate::load::{RATE, Side, quantile, success};
use crate::script;

/// An SVG document.
pub(crate) fn render(naive: &Side, steadfast: &Side, changes: &[Change]) -> String {
    let sides = [naive, steadfast];
    let mut svg = Svg::new();
    svg.heading(sides);
    svg.phases();

    let share = |side: &Side, from, to| success(&side.started_between(from, to)).map(|share| share * 100.0);
    Panel { title: "calls that succeed, by the time they were made", unit: " %", top: 150.0, most: 100.0, step: 50.0 }
        .draw(&mut svg, sides, share);

    let load = |side: &Side, from: Duration, to: Duration| {
        Some(side.arrived_between(from, to) as f64 / (to - from).as_secs_f64())
    };
    let peak = curve(naive, load).into_iter().map(|(_, rate)| rate).fold(f64::from(RATE), f64::max);
    Panel {
        title: "requests that reach the server, per second",
        unit: "",
        top: 300.0,
        most: (peak / 200.0).ceil() * 200.0,
        step: 200.0,
    }
    .draw(&mut svg, sides, load);

    let wait = |side: &Side, from, to| Some(quantile(&side.started_between(from, to), 0.5).as_secs_f64());
    Panel { title: "how long the caller waits, median", unit: " s", top: 450.0, most: 3.0, step: 1.0 }
        .draw(&mut svg, sides, wait);

    svg.breaker(changes);
    svg.axis();
    svg.finish()
}

/// One panel: its place, and the scale of what it shows.
struct Panel {
    title: &'static str,
    unit: &'static str,
    top: f64,
    most: f64,
    step: f64,
}

impl Panel {
    fn draw(&self, svg: &mut Svg, sides: [&Side; 2], value: impl Fn(&Side, Duration, Duration) -> Option<f64> + Copy) {
        svg.text(LEFT, self.top - 9.0, "start", "label", self.title);
        let mut tick = 0.0;
        while tick <= self.most {
            let y = self.y(tick);
            svg.line((LEFT, y), (RIGHT, y), "grid");
            svg.text(LEFT - 8.0, y + 4.0, "end", "tick", &format!("{tick}{}", self.unit));
            tick += self.step;
        }
        for (side, class) in sides.into_iter().zip(CLIENTS) {
            let points: Vec<_> = curve(side, value).into_iter().map(|(at, value)| (x(at), self.y(value))).collect();
            svg.curve(&points, self.y(0.0), class);
        }
    }

    fn y(&self, value: f64) -> f64 {
        self.top + PANEL_HEIGHT * (1.0 - value.min(self.most) / self.most)
    }
}

/// What `value` says of each bin, at the middle of the bin.
fn curve(side: &Side, value: impl Fn(&Side, Duration, Duration) -> Option<f64>) -> Vec<(Duration, f64)> {
    let mut points = Vec::new();
    let mut from = Duration::ZERO;
    while from < script::length() {
        points.extend(value(side, from, from + BIN).map(|value| (from + BIN / 2, value)));
        from += BIN;
    }
    points
}

/// Where a time lies.
fn x(time: Duration) -> f64 {
    LEFT + (RIGHT - LEFT) * time.as_secs_f64() / script::length().as_secs_f64()
}

/// A document in the making.
struct Svg(String);

impl Svg {
    fn new() -> Svg {
        Svg(format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" width=\"{WIDTH}\" \
             height=\"{HEIGHT}\" role=\"img\">\n<title>{TITLE}</title>\n<style>{STYLE}</style>\n"
        ))
    }

    fn heading(&mut self, sides: [&Side; 2]) {
        self.text(LEFT, 28.0, "start", "title", TITLE);
        let load = format!("each makes {RATE} calls per second, may try three times, and waits 1 s for each answer");
        self.text(LEFT, 50.0, "start", "label", &load);
        let names = ["naive, tries again at once", "steadfast, (Retry, Breaker, Timeout)"];
        for (index, ((side, name), class)) in sides.into_iter().zip(names).zip(CLIENTS).enumerate() {
            let left = LEFT + 430.0 * index as f64;
            let ok = success(&side.samples).unwrap_or_default() * 100.0;
            let text = format!("{name}: {ok:.0} % ok, {:.2} requests per call", side.per_call());
            self.line((left, 73.0), (left + 22.0, 73.0), class);
            self.text(left + 30.0, 77.0, "start", "label", &text);
        }
    }

    /// Names and shades the phases of the script, from the first panel to the state of the breaker.
    fn phases(&mut self) {
        for (index, (from, to, phase)) in script::timeline().enumerate() {
            let (left, right) = (x(from), x(to));
            let class = if index % 2 == 0 { "even" } else { "odd" };
            self.rect((left, PHASES_TOP), (right, BAND_BOTTOM), class);
            self.text(f64::midpoint(left, right), PHASES_TOP + 17.0, "middle", "phase", phase.name);
        }
    }

    fn breaker(&mut self, changes: &[Change]) {
        self.text(LEFT - 8.0, BAND_BOTTOM - 7.0, "end", "tick", "breaker");
        let changes: Vec<_> = changes.iter().filter(|change| change.at < script::length()).collect();
        let ends = changes.iter().map(|change| change.at).chain([script::length()]);
        let states = [State::Closed].into_iter().chain(changes.iter().map(|change| change.to));
        let mut from = Duration::ZERO;
        for (state, to) in states.zip(ends) {
            let (left, right) = (x(from), x(to));
            let (class, name) = match state {
                State::Open => ("open", "open"),
                State::HalfOpen => ("half", "half-open"),
                _ => ("closed", "closed"),
            };
            // Also a trial that took no time is to be seen.
            self.rect((left, BAND_TOP), (right.max(left + 1.5), BAND_BOTTOM), class);
            if right - left > STATE_LETTER * name.len() as f64 {
                self.text(f64::midpoint(left, right), BAND_BOTTOM - 7.0, "middle", "state", name);
            }
            from = to;
        }
    }

    fn axis(&mut self) {
        for second in 0..=script::length().as_secs() {
            let at = x(Duration::from_secs(second));
            self.line((at, BAND_BOTTOM), (at, BAND_BOTTOM + 5.0), "grid");
            self.text(at, BAND_BOTTOM + 19.0, "middle", "tick", &second.to_string());
        }
        self.text(f64::midpoint(LEFT, RIGHT), BAND_BOTTOM + 38.0, "middle", "label", "time, s");
    }

    fn finish(self) -> String {
        self.0 + "</svg>\n"
    }

    fn text(&mut self, x: f64, y: f64, anchor: &str, class: &str, text: &str) {
        self.0 +=
            &format!("<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" class=\"{class}\">{text}</text>\n");
    }

    fn line(&mut self, (x1, y1): (f64, f64), (x2, y2): (f64, f64), class: &str) {
        self.0 += &format!("<path d=\"M{x1:.1} {y1:.1}L{x2:.1} {y2:.1}\" class=\"{class}\"/>\n");
    }

    fn rect(&mut self, (left, top): (f64, f64), (right, bottom): (f64, f64), class: &str) {
        let (width, height) = (right - left, bottom - top);
        self.0 += &format!(
            "<rect x=\"{left:.1}\" y=\"{top:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" class=\"{class}\"/>\n"
        );
    }

    /// A curve, with a shade between it and the line below.
    fn curve(&mut self, points: &[(f64, f64)], ground: f64, class: &str) {
        let (Some((first, _)), Some((last, _))) = (points.first(), points.last()) else { return };
        let path: Vec<_> = points.iter().map(|(x, y)| format!("{x:.1} {y:.1}")).collect();
        let path = path.join("L");
        self.0 += &format!(
            "<path d=\"M{first:.1} {ground:.1}L{path}L{last:.1} {ground:.1}Z\" class=\"{class} area\"/>\n\
             <path d=\"M{path}\" class=\"{class}\"/>\n"
        );
    }
}

/// The time that one point of a curve stands for.
const BIN: Duration = Duration::from_millis(250);

/// What a letter of a state's name needs.
const STATE_LETTER: f64 = 6.0;

/// The classes of the two clients.
const CLIENTS: [&str; 2] = ["naive", "steadfast"];

const TITLE: &str = "The same 15 s outage, seen by two clients";
const WIDTH: f64 = 960.0;
const HEIGHT: f64 = 650.0;
const LEFT: f64 = 66.0;
const RIGHT: f64 = 944.0;
const PANEL_HEIGHT: f64 = 100.0;
const PHASES_TOP: f64 = 94.0;
const BAND_TOP: f64 = 574.0;
const BAND_BOTTOM: f64 = 598.0;

const STYLE: &str = "\
    text{font-family:system-ui,'Segoe UI','Helvetica Neue',Arial,sans-serif;fill:#78828e}\
    .title{font-size:19px;font-weight:600}.label{font-size:13px}.phase{font-size:12.5px;font-weight:600}\
    .tick{font-size:12px}.state{font-size:11px;fill:#fff;font-weight:600}\
    path{fill:none;stroke-linejoin:round}.grid{stroke:#78828e;stroke-opacity:.25}\
    .naive{stroke:#e5702a;stroke-width:2.2}.steadfast{stroke:#2f81f7;stroke-width:2.2}\
    .area{stroke:none;fill-opacity:.09}.naive.area{fill:#e5702a}.steadfast.area{fill:#2f81f7}\
    .even{fill:#78828e;fill-opacity:.05}.odd{fill:#78828e;fill-opacity:.13}\
    .closed{fill:#2d9a49}.open{fill:#d93a3f}.half{fill:#b58407}";
