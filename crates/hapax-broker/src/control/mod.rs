//! The control port: rules and steps as JSON over HTTP, so that a test in any language can drive the broker.
//!
//! ```text
//! GET    /address      {"bootstrap": "127.0.0.1:39213"}
//! POST   /rules        a rule             -> 201 {"id": 1}
//! GET    /rules        [{"id": 1, "matched": 3, "fired": 1, "rule": {..}}, ..]
//! DELETE /rules        all of them        -> 204
//! DELETE /rules/{id}                      -> 200, its last report
//! POST   /step         a step: "crash", {"move_coordinator": {"transactional_id": "orders"}}   -> 204
//! POST   /clock        {"jump_ms": 60000} -> 204
//! GET    /state        topics, partitions, transactions
//! ```
//!
//! What is refused answers 400 (or 403, 404, 415) with `{"error": ".."}`; see [`door`] on who may come in. In front of a real cluster there is neither `/step`
//! nor `/clock` nor `/state`: 404.

mod door;
mod state;

pub(crate) use state::state;

use crate::{
    fault::{Faults, RuleId},
    server::{Bound, Core, Halted},
};
use axum::{
    Json, Router,
    body::Bytes,
    extract::{Path, Request, State},
    http::StatusCode,
    middleware::{self, Next},
    response::{IntoResponse, Response},
    routing::{delete, get, post},
};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Value, json};
use std::sync::Arc;
use tokio::sync::watch;

/// What is controlled.
#[derive(Clone)]
pub(crate) enum Subject {
    /// An embedded broker.
    Broker(Arc<Core>),
    /// A proxy: rules only.
    Proxy(Faults),
}

#[derive(Clone)]
struct Port {
    subject: Subject,
    bootstrap: Arc<str>,
    advertised: Option<Arc<str>>,
}

/// What a control port serves, and for whom.
pub(crate) struct Served {
    pub(crate) subject: Subject,
    pub(crate) bootstrap: String,
    /// The name that clients are told, by which the port may be asked, too.
    pub(crate) advertised: Option<String>,
}

/// Serves the control port. Its connections end when everything is told to stop.
pub(crate) async fn serve(bound: Bound, served: Served, stop: watch::Receiver<bool>) {
    let Served { subject, bootstrap, advertised } = served;
    let port = Port { subject, bootstrap: bootstrap.into(), advertised: advertised.map(Into::into) };
    let router = Router::new()
        .route("/address", get(address))
        .route("/rules", get(rules).post(add_rule).delete(clear_rules))
        .route("/rules/{id}", delete(remove_rule))
        .route("/step", post(step))
        .route("/clock", post(clock))
        .route("/state", get(show_state))
        .fallback(unknown)
        .method_not_allowed_fallback(wrong_method)
        .layer(middleware::from_fn_with_state(port.clone(), admit))
        .with_state(port);
    if let Err(error) = axum::serve(door::Door { bound, stop }, router).await {
        tracing::error!(%error, "the control port ended");
    }
}

async fn unknown() -> Refusal {
    let paths = "/address, /rules, /rules/{id}, /step, /clock and /state";
    Refusal(StatusCode::NOT_FOUND, format!("there is no such path; there are {paths}"))
}

async fn wrong_method() -> Refusal {
    Refusal(StatusCode::METHOD_NOT_ALLOWED, "this path has no such method".to_owned())
}

impl Port {
    fn faults(&self) -> &Faults {
        match &self.subject {
            Subject::Broker(core) => &core.faults,
            Subject::Proxy(faults) => faults,
        }
    }

    fn core(&self) -> Result<&Core, Refusal> {
        match &self.subject {
            Subject::Broker(core) => Ok(core),
            Subject::Proxy(_) => Err(Refusal(
                StatusCode::NOT_FOUND,
                "a proxy has rules only; the cluster is not its own".into(),
            )),
        }
    }
}

struct Refusal(StatusCode, String);

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        (self.0, Json(json!({ "error": self.1 }))).into_response()
    }
}

impl From<Halted> for Refusal {
    fn from(error: Halted) -> Self {
        let code = match error {
            Halted::Impossible(_) => StatusCode::BAD_REQUEST,
            Halted::Stopped | Halted::Crashed | Halted::Journal(_) => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Self(code, error.to_string())
    }
}

fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, Refusal> {
    serde_json::from_slice(body).map_err(|error| Refusal(StatusCode::BAD_REQUEST, error.to_string()))
}

async fn admit(State(port): State<Port>, request: Request, next: Next) -> Response {
    match door::refusal(request.method(), request.headers(), port.advertised.as_deref()) {
        Some(refusal) => refusal.into_response(),
        None => next.run(request).await,
    }
}

async fn address(State(port): State<Port>) -> Json<Value> {
    Json(json!({ "bootstrap": *port.bootstrap }))
}

async fn rules(State(port): State<Port>) -> Response {
    Json(port.faults().list()).into_response()
}

async fn add_rule(State(port): State<Port>, body: Bytes) -> Result<Response, Refusal> {
    let rule = read(&body)?;
    let id = port.faults().add(rule).map_err(|error| Refusal(StatusCode::BAD_REQUEST, error.to_string()))?;
    Ok((StatusCode::CREATED, Json(json!({ "id": id }))).into_response())
}

async fn clear_rules(State(port): State<Port>) -> StatusCode {
    port.faults().clear();
    StatusCode::NO_CONTENT
}

async fn remove_rule(State(port): State<Port>, Path(id): Path<String>) -> Result<Response, Refusal> {
    match id.parse().ok().and_then(|id| port.faults().remove(RuleId(id))) {
        Some(report) => Ok(Json(report).into_response()),
        None => Err(Refusal(StatusCode::NOT_FOUND, format!("no rule has the number {id}"))),
    }
}

async fn step(State(port): State<Port>, body: Bytes) -> Result<StatusCode, Refusal> {
    let core = port.core()?;
    core.step(read(&body)?)?;
    Ok(StatusCode::NO_CONTENT)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Jump {
    jump_ms: i64,
}

async fn clock(State(port): State<Port>, body: Bytes) -> Result<StatusCode, Refusal> {
    let core = port.core()?;
    let Jump { jump_ms } = read(&body)?;
    core.jump(jump_ms)?;
    Ok(StatusCode::NO_CONTENT)
}

async fn show_state(State(port): State<Port>) -> Result<Json<Value>, Refusal> {
    Ok(Json(state(port.core()?)))
}
