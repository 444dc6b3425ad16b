//! A headless Chromium, spoken to by its DevTools protocol over a pipe: messages in JSON, each ended by a zero byte. A client that is
//! a crate would bring a WebSocket and a generated type for all of the protocol, of which this needs a dozen methods.

use std::collections::HashMap;
use std::env;
use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

/// A browser with one page.
pub(crate) struct Browser {
    process: Child,
    to: ChildStdin,
    from: Receiver<Value>,
    profile: PathBuf,
    session: Option<String>,
    sent: u64,
    complaints: Vec<String>,
    loaded: bool,
}

impl Browser {
    /// Starts the browser with an empty page. If there is none, this is a failure where one is required, and is said elsewhere.
    pub(crate) fn start() -> Option<Browser> {
        let Some(program) = find() else {
            assert!(env::var("STEADFAST_BROWSER").is_err(), "none of {PROGRAMS:?} is here, and a browser is required");
            // Not `eprintln`, of which nobody hears unless the test fails.
            let _nobody_reads = writeln!(io::stderr(), "skipped, since none of {PROGRAMS:?} is here");
            return None;
        };
        static STARTED: AtomicU32 = AtomicU32::new(0);
        let nth = STARTED.fetch_add(1, Relaxed);
        let profile = env::temp_dir().join(format!("steadfast-browser-{}-{nth}", std::process::id()));
        // The browser reads from descriptor 3 and writes to 4; a shell can put them there without `unsafe`.
        let mut process = Command::new("sh")
            .args(["-c", "exec \"$0\" \"$@\" 3<&0 4>&1 </dev/null >/dev/null 2>&1"])
            .arg(program)
            .args(FLAGS)
            .arg(format!("--user-data-dir={}", profile.display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let to = process.stdin.take().unwrap();
        let from = read(BufReader::new(process.stdout.take().unwrap()));
        let (session, sent, complaints, loaded) = (None, 0, Vec::new(), false);
        let mut browser = Browser { process, to, from, profile, session, sent, complaints, loaded };
        browser.open_page();
        Some(browser)
    }

    fn open_page(&mut self) {
        let target = self.call("Target.createTarget", json!({ "url": "about:blank" }))["targetId"].clone();
        let attached = self.call("Target.attachToTarget", json!({ "targetId": target, "flatten": true }));
        self.session = Some(attached["sessionId"].as_str().unwrap().to_owned());
        for domain in ["Page", "Runtime", "Log"] {
            self.call(&format!("{domain}.enable"), json!({}));
        }
        self.resize(1200, 1000);
    }

    /// Opens a page, and waits until it has loaded what it is made of.
    pub(crate) fn go_to(&mut self, url: &str) {
        self.loaded = false;
        let answer = self.call("Page.navigate", json!({ "url": url }));
        assert_eq!(answer.get("errorText"), None, "{url}");
        while !self.loaded {
            let event = self.receive(url);
            self.listen(&event);
        }
    }

    /// Runs a script in each page before its own, from the next one on.
    pub(crate) fn before_each_page(&mut self, script: &str) {
        self.call("Page.addScriptToEvaluateOnNewDocument", json!({ "source": script }));
    }

    /// The value of an expression; of a promise, what comes of it.
    pub(crate) fn eval(&mut self, expression: &str) -> Value {
        let what = json!({ "expression": expression, "awaitPromise": true, "returnByValue": true });
        let answer = self.call("Runtime.evaluate", what);
        assert_eq!(answer.get("exceptionDetails"), None, "{expression}");
        answer["result"].get("value").cloned().unwrap_or_default()
    }

    pub(crate) fn text(&mut self, selector: &str) -> String {
        let found = self.eval(&format!("document.querySelector({}).textContent", json!(selector)));
        found.as_str().unwrap().to_owned()
    }

    /// Waits until the expression is true, as long as a page may take for it.
    pub(crate) fn until(&mut self, condition: &str) {
        let ended = self.eval(&format!(
            "new Promise((done) => {{ \
                const end = Date.now() + {PATIENCE_MS}; \
                (function look() {{ \
                    if ({condition}) done('true'); \
                    else if (Date.now() > end) done(document.body.innerText); \
                    else setTimeout(look, 20); \
                }})(); \
            }})"
        ));
        assert_eq!(ended, "true", "{condition}");
    }

    /// Presses a key and lets it go.
    pub(crate) fn press(&mut self, key: &str) {
        for kind in ["rawKeyDown", "keyUp"] {
            self.call("Input.dispatchKeyEvent", json!({ "type": kind, "key": key, "code": key }));
        }
    }

    pub(crate) fn resize(&mut self, width: u32, height: u32) {
        let size = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false });
        self.call("Emulation.setDeviceMetricsOverride", size);
        // Until the page has heard of it, and is painted in its new size.
        self.eval("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(null))))");
    }

    /// "light" or "dark".
    pub(crate) fn prefer(&mut self, scheme: &str) {
        let features = json!([{ "name": "prefers-color-scheme", "value": scheme }]);
        self.call("Emulation.setEmulatedMedia", json!({ "features": features }));
    }

    /// A picture of the whole page, in a window of this width, as PNG.
    pub(crate) fn picture(&mut self, width: u32) -> Vec<u8> {
        self.resize(width, 100);
        let height = self.eval("document.documentElement.scrollHeight").as_u64().unwrap();
        self.resize(width, u32::try_from(height).unwrap());
        let picture = self.call("Page.captureScreenshot", json!({ "format": "png" }));
        decode(picture["data"].as_str().unwrap())
    }

    /// What the page has logged as an error or a warning, thrown, or been refused by its own security policy.
    pub(crate) fn complaints(&mut self) -> Vec<String> {
        // Whatever was said before this answer has been read by then.
        self.eval("null");
        self.complaints.clone()
    }

    fn call(&mut self, method: &str, parameters: Value) -> Value {
        self.sent += 1;
        let mut message = json!({ "id": self.sent, "method": method, "params": parameters });
        if let Some(session) = &self.session {
            message["sessionId"] = json!(session);
        }
        write!(self.to, "{message}\0").unwrap();
        self.to.flush().unwrap();
        loop {
            let mut answer = self.receive(method);
            if answer["id"] == self.sent {
                assert_eq!(answer.get("error"), None, "{method}");
                return answer["result"].take();
            }
            self.listen(&answer);
        }
    }

    fn receive(&self, after: &str) -> Value {
        self.from.recv_timeout(ANSWER_WITHIN).unwrap_or_else(|gone| panic!("{after}: {gone}"))
    }

    fn listen(&mut self, event: &Value) {
        let about = &event["params"];
        self.loaded |= event["method"] == "Page.loadEventFired";
        let complains = match event["method"].as_str() {
            Some("Runtime.exceptionThrown") => true,
            Some("Runtime.consoleAPICalled") => {
                ["error", "warning", "assert"].iter().any(|kind| about["type"] == *kind)
            }
            Some("Log.entryAdded") => ["error", "warning"].iter().any(|level| about["entry"]["level"] == *level),
            _ => false,
        };
        if complains {
            self.complaints.push(about.to_string());
        }
    }
}

/// It is asked to end, since only then do its own processes end before it, which write to the profile.
impl Drop for Browser {
    fn drop(&mut self) {
        let _not_heard = write!(self.to, "{}\0", json!({ "id": 0, "method": "Browser.close" }));
        while self.from.recv_timeout(ANSWER_WITHIN).is_ok() {}
        let _gone_already = self.process.kill();
        let _reaped = self.process.wait();
        let _left_behind = fs::remove_dir_all(&self.profile);
    }
}

/// Reads messages until the browser has closed its end.
fn read(mut pipe: impl BufRead + Send + 'static) -> Receiver<Value> {
    let (sender, receiver) = channel();
    thread::spawn(move || {
        let mut message = Vec::new();
        while pipe.read_until(0, &mut message).is_ok_and(|read| read > 0) {
            message.pop();
            if sender.send(serde_json::from_slice(&message).unwrap()).is_err() {
                break;
            }
            message.clear();
        }
    });
    receiver
}

/// Reads base64.
fn decode(text: &str) -> Vec<u8> {
    let digits = ('A'..='Z').chain('a'..='z').chain('0'..='9').chain(['+', '/']);
    let values: HashMap<char, u32> = digits.zip(0..).collect();
    let read: Vec<_> = text.trim_end_matches('=').chars().map(|digit| values[&digit]).collect();
    let bytes = read.chunks(4).flat_map(|four| {
        let bits = four.iter().zip([18, 12, 6, 0]).map(|(digit, shift)| digit << shift).sum::<u32>();
        bits.to_be_bytes().into_iter().skip(1).take(four.len() - 1)
    });
    bytes.collect()
}

fn find() -> Option<PathBuf> {
    let folders: Vec<_> = env::split_paths(&env::var_os("PATH")?).collect();
    PROGRAMS.iter().flat_map(|name| folders.iter().map(move |folder| folder.join(name))).find(|path| path.is_file())
}

const PROGRAMS: [&str; 4] = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];

/// Root has no sandbox and containers little shared memory; the page is our own.
const FLAGS: [&str; 9] = [
    "--headless=new",
    "--remote-debugging-pipe",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--no-first-run",
    "--hide-scrollbars",
    "--no-proxy-server",
];

/// Longer than the script of the dashboard, on a machine that does something else as well.
const PATIENCE_MS: u32 = 40_000;
const ANSWER_WITHIN: Duration = Duration::from_secs(50);
