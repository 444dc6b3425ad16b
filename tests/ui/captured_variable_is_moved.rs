use steadfast::{Context, Retry, try_do};

async fn send(body: String) -> Result<(), String> {
    Err(body)
}

fn main() {
    let cx = Context::new();
    let body = String::from("invoice");
    let _run = try_do(&cx, |_| send(body), Retry::exponential());
}
