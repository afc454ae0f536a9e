//! Spans of real workers on a real server, collected in memory.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used)]

use std::time::{Duration, Instant};

use heartline::testing::TestApp;
use heartline::{Context, Graph, JobError, RetryPolicy, TaskOptions, WorkflowOptions};
use heartline_otel::{CallSpans, TraceDispatch, TraceStart, traced};
use opentelemetry::trace::{SpanId, SpanKind, Status, TraceContextExt, TraceId, Tracer};
use opentelemetry::{KeyValue, global};
use opentelemetry_sdk::trace::{InMemorySpanExporter, SdkTracerProvider, SpanData};

fn named<'a>(spans: &'a [SpanData], name: &str) -> Vec<&'a SpanData> {
    spans.iter().filter(|span| span.name == name).collect()
}

fn attribute(span: &SpanData, name: &str) -> Option<String> {
    span.attributes.iter().find(|said| said.key.as_str() == name).map(|said: &KeyValue| said.value.to_string())
}

async fn until(what: &str, mut so: impl AsyncFnMut() -> bool) {
    let begun = Instant::now();
    while !so().await {
        assert!(begun.elapsed() < Duration::from_secs(30), "timed out waiting until {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// One test, since the tracer provider is global to the process.
#[tokio::test]
async fn one_trace_leads_from_the_request_to_every_run_of_the_job() {
    let exporter = InMemorySpanExporter::default();
    let provider = SdkTracerProvider::builder().with_simple_exporter(exporter.clone()).build();
    global::set_tracer_provider(provider.clone());
    let test = TestApp::start().await.unwrap();
    let app = test.app();
    let handler = |ctx: Context, input: String| async move {
        // A span of the handler is a child of its run.
        let tracer = global::tracer("test");
        tracer.in_span("work", |_| {});
        match (input.as_str(), ctx.attempt()) {
            ("twice", 1) => Err(JobError::new("no space".to_owned()).with_code("disk")),
            ("panics", _) => panic!("on purpose"),
            ("later", _) if ctx.snoozed_count() == 0 => Err(JobError::snooze(Duration::from_millis(1))),
            _ => Ok(input),
        }
    };
    let options = TaskOptions::new().retry(RetryPolicy::new().attempts(2).fixed(Duration::from_millis(1)));
    let task = app.task("export", options, traced(handler)).unwrap();

    let tracer = global::tracer("test");
    let request = opentelemetry::Context::current_with_span(tracer.start("request"));
    let (trace, root) = (request.span().span_context().trace_id(), request.span().span_context().span_id());
    {
        use opentelemetry::trace::FutureExt;
        let sending = async {
            task.dispatch("twice".to_owned()).id("twice").traced().await.unwrap();
            task.dispatch("twice".to_owned()).id("twice").traced().await.unwrap();
        };
        sending.with_context(request.clone()).await;
    }
    request.span().end();
    task.dispatch("panics".to_owned()).id("panics").attempts(1).traced().await.unwrap();
    let later = task.dispatch("later".to_owned()).id("later").traced();
    opentelemetry::trace::FutureExt::with_context(later, request.clone()).await.unwrap();
    task.dispatch("plain".to_owned()).id("plain").await.unwrap();
    task.dispatch("odd".to_owned()).id("odd").header("traceparent", "00-nothing-of-that-kind").await.unwrap();
    let full = task.dispatch("full".to_owned()).id("full").header("tenant", "x".repeat(4_060));
    full.traced().await.expect("a trace without room in the headers must not prevent the dispatch");
    let wrong = task.dispatch("x".to_owned()).id("").traced().await;
    assert!(wrong.is_err());
    let flow = app.workflow::<()>("nightly", WorkflowOptions::new()).unwrap();
    let graph = || {
        let (graph, inner) = (Graph::new(), Graph::new());
        inner.node("leaf", &task, "leaf".to_owned());
        let first = graph.node("first", &task, "first".to_owned());
        graph.subgraph("inner", inner).after(&first);
        graph
    };
    for _ in 0..2 {
        let start = flow.start(graph()).id("one").traced();
        opentelemetry::trace::FutureExt::with_context(start, request.clone()).await.unwrap();
    }
    let wrong = flow.start(graph()).id("").traced().await;
    assert!(wrong.is_err());
    let drained = app.worker().observe(CallSpans::default()).drain().await.unwrap();
    assert_eq!((drained.completed, drained.failed, drained.retried, drained.put_off), (7, 1, 1, 1));
    let spans = async || {
        provider.force_flush().unwrap();
        exporter.get_finished_spans().unwrap()
    };
    let told = async || {
        let spans = spans().await;
        ["settle export", "receive export"].iter().all(|name| !named(&spans, name).is_empty())
    };
    until("its calls are exported", told).await;
    let spans = spans().await;

    let sent = named(&spans, "send export");
    let of = |id: &str| {
        let is_it = |span: &&&SpanData| attribute(span, "messaging.message.id").as_deref() == Some(id);
        sent.iter().filter(is_it).copied().collect::<Vec<_>>()
    };
    let [first, second] = of("twice")[..] else { panic!("{sent:?}") };
    assert_eq!(
        (first.span_kind.clone(), first.span_context.trace_id(), first.parent_span_id),
        (SpanKind::Producer, trace, root)
    );
    assert_eq!(
        (attribute(first, "heartline.job.existed"), attribute(second, "heartline.job.existed").as_deref()),
        (None, Some("true"))
    );
    assert!(sent.iter().any(|span| matches!(span.status, Status::Error { .. })), "the dispatch with an invalid id");
    assert_eq!((of("later")[0].span_context.trace_id(), of("later")[0].parent_span_id), (trace, root));

    let runs = named(&spans, "process export");
    let of = |id: &str| {
        let is_it = |span: &&&SpanData| attribute(span, "messaging.message.id").as_deref() == Some(id);
        runs.iter().filter(is_it).copied().collect::<Vec<_>>()
    };
    let twice = of("twice");
    assert_eq!(twice.len(), 2);
    for run in &twice {
        assert_eq!((run.span_kind.clone(), run.span_context.trace_id()), (SpanKind::Consumer, trace));
        assert_eq!((run.parent_span_id, run.parent_span_is_remote), (first.span_context.span_id(), true));
        assert_eq!(run.links.links[0].span_context.span_id(), first.span_context.span_id());
        let inner =
            spans.iter().filter(|span| span.name == "work" && span.parent_span_id == run.span_context.span_id());
        assert_eq!(inner.count(), 1, "the span of the handler is a child of its run");
    }
    let failed = twice.iter().find(|run| attribute(run, "heartline.attempt").as_deref() == Some("1")).unwrap();
    assert_eq!(failed.status, Status::error("no space"));
    assert_eq!(attribute(failed, "error.type").as_deref(), Some("disk"));
    let done = twice.iter().find(|run| attribute(run, "heartline.attempt").as_deref() == Some("2")).unwrap();
    assert_eq!(done.status, Status::Unset);
    assert!(matches!(&of("panics")[0].status, Status::Error { description } if description.contains("panicked")));
    assert_eq!((of("later").len(), of("later")[0].status.clone()), (2, Status::Unset), "a snoozed job has not failed");
    assert!(of("later").iter().all(|run| attribute(run, "error.type").is_none()));
    for id in ["plain", "odd"] {
        assert_eq!((of(id)[0].parent_span_id, of(id)[0].links.len()), (SpanId::INVALID, 0), "{id}");
        assert_ne!(of(id)[0].span_context.trace_id(), TraceId::INVALID);
    }

    let [start, again, wrong] = named(&spans, "start nightly")[..] else { panic!("{spans:?}") };
    assert_eq!(
        (start.span_kind.clone(), start.span_context.trace_id(), start.parent_span_id),
        (SpanKind::Producer, trace, root)
    );
    let existed = |span| attribute(span, "heartline.instance.existed");
    assert_eq!((attribute(start, "messaging.message.id").as_deref(), existed(start)), (Some("one"), None));
    assert_eq!(existed(again).as_deref(), Some("true"));
    assert!(matches!(wrong.status, Status::Error { .. }));
    for id in ["~nightly/one/0/1", "~nightly/one/1.1/0/1"] {
        let run = of(id)[0];
        assert_eq!(
            (run.span_context.trace_id(), run.parent_span_id),
            (trace, start.span_context.span_id()),
            "the run of a node is a child of the start"
        );
    }

    let jobs = |name: &str| {
        let counts = named(&spans, name);
        assert!(counts.iter().all(|span| span.span_kind == SpanKind::Client && span.parent_span_id == SpanId::INVALID));
        assert!(counts.iter().all(|span| span.end_time >= span.start_time));
        let count =
            |span: &&SpanData| attribute(span, "messaging.batch.message_count").unwrap().parse::<u64>().unwrap();
        counts.iter().map(count).sum::<u64>()
    };
    // Ten runs of eight jobs; some calls may not be observed yet.
    assert!((1..=10).contains(&jobs("receive export")) && (1..=10).contains(&jobs("settle export")));
    let is_secret = |span: &SpanData| span.attributes.iter().any(|said| said.value.to_string().contains("\"twice\""));
    assert!(!spans.iter().any(is_secret), "a span contains the payload");
}
