//! The scale of one side of a panel.

/// From where to where, on which scale, with which ticks.
#[derive(Clone)]
pub(crate) struct Axis {
    pub(crate) label: String,
    scale: Scale,
    from: f64,
    to: f64,
    ticks: Vec<(f64, String)>,
}

#[derive(Clone, Copy, PartialEq)]
enum Scale {
    Linear,
    Log,
}

impl Axis {
    /// From `from` to at least `to`, with ticks at round numbers.
    pub(crate) fn linear(label: impl Into<String>, from: f64, to: f64) -> Axis {
        let step = round_step((to - from).max(1e-9) / TICKS);
        let last = ((to - from) / step - 1e-9).ceil() as i32;
        let ticks = (0..=last).map(|n| from + f64::from(n) * step).map(|at| (at, number(at))).collect();
        Axis { label: label.into(), scale: Scale::Linear, from, to: from + f64::from(last) * step, ticks }
    }

    /// From `from` to `to` and a little more, with ticks at powers of ten, or at 1, 2 and 5 times those if there would be few.
    pub(crate) fn log(label: impl Into<String>, from: f64, to: f64) -> Axis {
        let mut steps = log_steps(from, to, &[1.0, 2.0, 5.0]);
        if steps.len() > 7 {
            steps = log_steps(from, to, &[1.0]);
        }
        let ticks: Vec<_> = steps.into_iter().map(|at| (at, number(at))).collect();
        let (from, to) = (ticks[0].0, ticks[ticks.len() - 1].0);
        Axis { label: label.into(), scale: Scale::Log, from, to, ticks }
    }

    /// The places 0, 1 and so on, which have names; half a place is left at both ends.
    pub(crate) fn names(label: impl Into<String>, names: &[&str]) -> Axis {
        let ticks: Vec<_> = names.iter().enumerate().map(|(place, &name)| (place as f64, name.to_owned())).collect();
        Axis { label: label.into(), scale: Scale::Linear, from: -0.5, to: ticks.len() as f64 - 0.5, ticks }
    }

    /// A logarithmic axis from end to end, with these ticks.
    pub(crate) fn log_with(label: impl Into<String>, ticks: &[(f64, &str)]) -> Axis {
        let ticks: Vec<_> = ticks.iter().map(|&(at, name)| (at, name.to_owned())).collect();
        let (from, to) = (ticks[0].0, ticks[ticks.len() - 1].0);
        Axis { label: label.into(), scale: Scale::Log, from, to, ticks }
    }

    /// Every tick and its text.
    pub(crate) fn ticks(&self) -> &[(f64, String)] {
        &self.ticks
    }

    /// Where a value lies between the ends, 0 to 1; what is beyond them is put at the end.
    pub(crate) fn place(&self, value: f64) -> f64 {
        let on = |value: f64| if self.scale == Scale::Log { libm::log(value.max(f64::MIN_POSITIVE)) } else { value };
        ((on(value) - on(self.from)) / (on(self.to) - on(self.from))).clamp(0.0, 1.0)
    }
}

/// These times all powers of ten, from the last one below `from` to the first one above `to`; two of them at least.
fn log_steps(from: f64, to: f64, times: &[f64]) -> Vec<f64> {
    let (low, high) = (libm::log10(from).floor() as i32, libm::log10(to).ceil() as i32 + 1);
    let all: Vec<_> = (low..=high).flat_map(|power| times.iter().map(move |time| time * 10_f64.powi(power))).collect();
    let first = all.iter().rposition(|at| *at <= from * (1.0 + 1e-9)).unwrap_or_default();
    let last = all.iter().position(|at| *at >= to * (1.0 - 1e-9)).unwrap_or(all.len() - 1);
    all[first..=last.max(first + 1)].to_vec()
}

/// 1, 2 or 5 times a power of ten, at least as much as `least`.
fn round_step(least: f64) -> f64 {
    let power = 10_f64.powi(libm::log10(least).floor() as i32);
    let steps = [1.0, 2.0, 5.0, 10.0].map(|step| step * power);
    steps.into_iter().find(|step| *step >= least * (1.0 - 1e-9)).unwrap_or(steps[3])
}

/// Without what floats leave behind, and with spaces between thousands.
fn number(value: f64) -> String {
    let rounded = (value * 1e6).round() / 1e6;
    if rounded.abs() < 10_000.0 {
        return rounded.to_string();
    }
    let digits = rounded.round().to_string();
    let cut = digits.len() % 3;
    let groups = [&digits[..cut]].into_iter().chain((cut..digits.len()).step_by(3).map(|at| &digits[at..at + 3]));
    groups.filter(|group| !group.is_empty()).collect::<Vec<_>>().join(" ")
}

/// About how many ticks fit.
const TICKS: f64 = 6.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_cover_all() {
        let ticks = |axis: Axis| axis.ticks.into_iter().map(|(_, text)| text).collect::<Vec<_>>().join(" ");
        assert_eq!(ticks(Axis::linear("", 0.0, 1.0)), "0 0.2 0.4 0.6 0.8 1");
        assert_eq!(ticks(Axis::linear("", 0.0, 131.0)), "0 50 100 150");
        assert_eq!(ticks(Axis::log("", 3.0, 40_000.0)), "1 10 100 1000 10 000 100 000");
        assert_eq!(ticks(Axis::log("", 30.0, 400.0)), "20 50 100 200 500");
        assert_eq!(ticks(Axis::log("", 1.0, 1.0)), "1 2");
    }

    #[test]
    fn values_lie_between_the_ends() {
        let axis = Axis::log("", 1.0, 100.0);
        assert!((axis.place(10.0) - 0.5).abs() < 1e-9);
        assert_eq!((axis.place(0.0), axis.place(1e9)), (0.0, 1.0));
    }
}
