//! What a browser and Prometheus are served.

use axum::Router;
use axum::extract::State;
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use axum::http::{HeaderValue, StatusCode};
use axum::middleware::map_response;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use serde_json::json;

use crate::service::{Price, Service};

/// All pages.
pub(crate) fn router(service: Service) -> Router {
    Router::new()
        .route("/", get(typed("text/html; charset=utf-8", include_str!("page.html"))))
        .route("/app.js", get(typed("text/javascript; charset=utf-8", include_str!("app.js"))))
        .route("/style.css", get(typed("text/css; charset=utf-8", include_str!("style.css"))))
        .route("/state", get(state))
        .route("/metrics", get(metrics))
        .route("/price", get(price))
        .with_state(service)
        .layer(map_response(with_headers))
}

type Typed<T> = ([(axum::http::HeaderName, &'static str); 1], T);

fn typed<T>(content_type: &'static str, body: T) -> Typed<T> {
    ([(CONTENT_TYPE, content_type)], body)
}

/// All that the page shows: one request, so that nothing of it is older than the rest.
async fn state(State(service): State<Service>) -> Typed<String> {
    let seen = service.history().seen();
    let state = json!({
        "at": service.playing().as_secs_f64(),
        "phase": service.phase(),
        "executor": service.snapshot(),
        "totals": seen.totals,
        "samples": seen.samples,
        "log": seen.log,
    });
    typed("application/json", state.to_string())
}

async fn metrics(State(service): State<Service>) -> Typed<String> {
    typed("text/plain; version=0.0.4; charset=utf-8", service.figures())
}

/// What customers of the service see.
async fn price(State(service): State<Service>) -> Response {
    match service.price().await {
        Ok(Price::Fresh(cents)) => format!("{}.{:02}\n", cents / 100, cents % 100).into_response(),
        Ok(Price::Old(cents)) => format!("{}.{:02} (as of yesterday)\n", cents / 100, cents % 100).into_response(),
        Err(error) => (StatusCode::SERVICE_UNAVAILABLE, format!("{error}\n")).into_response(),
    }
}

/// The page needs its own two files and `/state`, and nothing from elsewhere.
async fn with_headers(mut response: Response) -> Response {
    let headers = response.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
