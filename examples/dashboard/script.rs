//! What happens to the dependency, and for how long. It starts again when it is over.

use std::time::Duration;

/// One part of the script.
pub(crate) struct Phase {
    pub(crate) name: &'static str,
    pub(crate) lasts: Duration,
    pub(crate) behaviour: Behaviour,
}

/// How the dependency behaves.
#[derive(Clone, Copy)]
pub(crate) enum Behaviour {
    /// It answers within a few milliseconds.
    Healthy,
    /// It answers, but takes so much longer.
    Slow(Duration),
    /// It fails this share of the calls.
    Errors(f64),
    /// It never answers.
    Dead,
}

/// The phase that the script is in, so long after it began for the first time.
pub(crate) fn phase_at(time: Duration) -> &'static Phase {
    let mut left = Duration::from_nanos_u128(time.as_nanos() % length().as_nanos());
    for phase in &SCRIPT {
        match left.checked_sub(phase.lasts) {
            Some(rest) => left = rest,
            None => return phase,
        }
    }
    &SCRIPT[0]
}

/// How long it takes from its begin to its end.
pub(crate) fn length() -> Duration {
    SCRIPT.iter().map(|phase| phase.lasts).sum()
}

pub(crate) const SCRIPT: [Phase; 5] = [
    phase("healthy", 2_000, Behaviour::Healthy),
    phase("slow", 2_500, Behaviour::Slow(Duration::from_millis(120))),
    phase("erroring", 2_500, Behaviour::Errors(0.8)),
    phase("dead", 2_500, Behaviour::Dead),
    phase("healed", 3_500, Behaviour::Healthy),
];

const fn phase(name: &'static str, millis: u64, behaviour: Behaviour) -> Phase {
    Phase { name, lasts: Duration::from_millis(millis), behaviour }
}
