//! The two accounts side by side, what is left at the end, and the verdict.

use std::collections::BTreeSet;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use steadfast::budget::BudgetConfig;

use crate::AnyResult;
use crate::client::{Client, WRONG, ms, sleep};
use crate::faults::Injected;
use crate::ledger::Counts;
use crate::machine;
use crate::server::{Server, Shared};

pub(crate) struct Report {
    lost: u64,
    leaks: u64,
    /// What has not happened, so that nothing is known of it.
    missing: Vec<String>,
    /// Tasks and open files before anything was started.
    tasks: usize,
    files: Option<usize>,
    /// In KiB, at the start, after a tenth of the load, and at its end.
    memory: [Option<u64>; 3],
}

impl Report {
    pub(crate) fn begin() -> Report {
        let memory = [machine::memory(), None, None];
        Report { lost: 0, leaks: 0, missing: Vec::new(), tasks: machine::tasks(), files: machine::files(), memory }
    }

    pub(crate) fn warmed_up(&mut self) {
        self.memory[1] = machine::memory();
    }

    pub(crate) fn loaded(&mut self) {
        self.memory[2] = machine::memory();
    }

    pub(crate) fn lost(&mut self, what: &str, number: u64) {
        println!("{:>12}  {what}{}", number, if number == 0 { "" } else { "  <<< LOST" });
        self.lost += number;
    }

    fn leak(&mut self, what: &str, number: u64) {
        println!("{:>12}  {what}{}", number, if number == 0 { "" } else { "  <<< LEAK" });
        self.leaks += number;
    }

    /// Everything has to have happened. A short run surely comes to what happens often.
    pub(crate) fn happened(&mut self, client: &Client, injected: &Injected, length: Duration) {
        let told = client.story.told();
        let often = [("retries", told.retries), ("hedges", told.hedges), ("transitions", told.transitions)];
        let never = often.into_iter().filter(|(_, number)| *number == 0).map(|(what, _)| what.to_owned());
        let is_short = length < Duration::from_secs(60);
        let faults = injected.missing().into_iter().filter(|fault| !is_short || fault.is_frequent());
        self.missing = never.chain(faults.map(|fault| format!("{fault:?}"))).collect();
    }

    /// Every call has one end, and callers, runs and the server tell the same.
    pub(crate) fn accounts(&mut self, client: &Client, server: &Shared) {
        let (calls, ended, sent) = (client.ledger.calls(), client.ledger.ended(), client.ledger.sent());
        let told = client.story.told();
        println!("\n{calls} calls ended so:");
        for (how, number) in &ended {
            println!("{number:>12}  {how}");
        }
        println!(
            "{} attempts: {} retries, {} hedges, {} cut off by a limit; {} refusals and {} transitions seen by calls",
            told.attempts, told.retries, told.hedges, told.timeouts, told.refusals, told.transitions,
        );
        let (received, answered) = (server.received.load(SeqCst), server.answered.load(SeqCst));
        let never_arrived = told.attempts.saturating_sub(received);
        let most = server.seen.most();
        println!(
            "{received} requests reached the server, at most {most} of one call, {answered} were answered; \
            {never_arrived} attempts never arrived\n"
        );

        self.lost("calls without a known end", calls - ended.values().sum::<u64>());
        self.lost("answers to something else", ended.get(WRONG).copied().unwrap_or(0));
        self.lost("calls without a run, or runs without a call", calls.abs_diff(told.started));
        self.lost("runs without an end", told.started.abs_diff(told.ended.values().sum()));
        let of = |counts: &Counts, how| counts.get(how).copied().unwrap_or(0);
        let ways: BTreeSet<_> = sent.keys().chain(told.ended.keys()).copied().collect();
        let differing = ways.into_iter().map(|how| of(&sent, how).abs_diff(of(&told.ended, how))).sum();
        self.lost("ends that callers and runs tell differently", differing);
        self.lost("attempts without an end", told.attempts.abs_diff(told.attempts_ended));
        self.lost("attempts that the ends of runs do not know", told.attempts.abs_diff(told.attempts_of_runs));
        // Also what is sent again beneath the attempts, where it would be hidden from all of the above.
        self.lost("requests beyond those that their call is allowed", server.seen.surplus());
    }

    /// What is left of policies, bodies, sockets and tasks. The client's connections close with it.
    pub(crate) async fn leaks(&mut self, client: Arc<Client>, server: &Server) -> AnyResult<()> {
        println!();
        self.leak("permits of the bulkhead", client.bulkhead.in_flight() as u64);
        self.leak("callers in its queue", client.bulkhead.queued() as u64);
        self.leak("callers in the queue of the rate limiter", client.limiter.queued() as u64);
        self.leak("runs and bodies that wait", client.executor.waiting() as u64);
        // As many retries as there are runs, and none without: what is free then is runs that still count.
        client.budget.reconfigure(BudgetConfig::concurrent(1.0).min(0))?;
        self.leak("runs that the budget still counts", client.budget.available().into());
        // Some without any run: what is missing of them is retries and hedges that still count.
        client.budget.reconfigure(BudgetConfig::concurrent(0.0).min(1_000))?;
        self.leak("retries and hedges that the budget still counts", 1_000 - u64::from(client.budget.available()));
        drop(client);

        let shared = server.shared();
        settle(|| shared.live.load(SeqCst) == 0 && shared.connections.load(SeqCst) == 0).await;
        self.leak("requests and bodies at the server", shared.live.load(SeqCst) as u64);
        self.leak("sockets at the server", shared.connections.load(SeqCst) as u64);
        Ok(())
    }

    /// What is left of the machine's, when both ends are gone.
    pub(crate) async fn leaks_of_process(&mut self) {
        settle(|| machine::tasks() <= self.tasks && machine::files() <= self.files).await;
        self.leak("tasks", machine::tasks().saturating_sub(self.tasks) as u64);
        if let (Some(before), Some(after)) = (self.files, machine::files()) {
            self.leak("open files and sockets", after.saturating_sub(before) as u64);
        }
    }

    pub(crate) fn verdict(&self) -> ExitCode {
        if let [Some(start), Some(warm), Some(end)] = self.memory.map(|kib| Some(kib? as f64 / 1024.0)) {
            println!(
                "\nmemory: {start:.1} MiB at the start, {warm:.1} MiB after a tenth of the load, {end:.1} MiB at its end"
            );
        }
        if !self.missing.is_empty() {
            println!("this has not happened: {}", self.missing.join(", "));
        }
        println!("{} requests lost, {} leaks", self.lost, self.leaks);
        let is_good = self.lost == 0 && self.leaks == 0 && self.missing.is_empty();
        if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}

/// How it stands.
pub(crate) fn line(client: &Client, server: &Shared, injected: &Injected) -> String {
    let memory = machine::memory().unwrap_or(0) / 1024;
    format!(
        "{:>9} calls, {:>9} requests at the server, {:>8} faults, breaker {}, {} under way, {memory} MiB",
        client.ledger.calls(),
        server.received.load(SeqCst),
        injected.total(),
        client.breaker.state(),
        client.executor.waiting(),
    )
}

/// The ends of connections are told across the network, and take their time.
async fn settle(is_over: impl Fn() -> bool) {
    for _ in 0..500 {
        if is_over() {
            return;
        }
        sleep(ms(10)).await;
    }
}
