use heartline::StopReason;

#[tokio::main]
async fn main() -> heartline::Result<StopReason> {
    tracing_subscriber::fmt().init(); // without it, no log line is shown
    let app = exports::app().state(exports::Database).build().await?;
    exports::register(&app)?;
    app.worker().run_until_signal().await
}
