//! One search for the name or the id of a task, a job, a worker, a workflow, an instance or a schedule.

use std::time::Duration;

use heartline::testing::TestApp;
use heartline::{Error, Graph, JobId, JobState, Match, Schedule, TaskDef, WorkflowOptions, WorkflowState};

const MAIL: TaskDef<u32, u32> = TaskDef::new("mail");
const EXPORT: TaskDef<u32, u32> = TaskDef::new("export");

#[tokio::test]
async fn a_name_or_an_id_is_found_over_all_tasks_and_workflows() {
    let test = TestApp::start().await.unwrap();
    let (app, inspector) = (test.app(), test.app().inspector());
    for (task, id) in [(&MAIL, "order-7"), (&EXPORT, "order-7"), (&EXPORT, "order-8")] {
        task.dispatch(app, 1).id(id).await.unwrap();
    }
    let rare = Schedule::every(Duration::from_secs(10 * 365 * 24 * 3600));
    app.task_ref::<u32, u32>("mail").unwrap().schedules().put("nightly", rare, 1).await.unwrap();
    let graph = Graph::new();
    graph.node("first", &MAIL, 1);
    app.workflow::<()>("nightly", WorkflowOptions::new()).unwrap().start(graph).id("2026-11-29").await.unwrap();

    let of = async |text: &str| inspector.find(text).await.unwrap();
    let job = |task: &str, id: &str| Match::Job {
        task: task.to_owned(),
        id: JobId::parse(id).unwrap(),
        state: JobState::Waiting,
    };
    assert_eq!(of(" order-8 ").await.matches, [job("export", "order-8")]);
    assert_eq!(of("order-7").await.matches, [job("export", "order-7"), job("mail", "order-7")]);
    let nightly = of("nightly").await;
    assert_eq!(
        nightly.matches,
        [
            Match::Workflow { workflow: "nightly".to_owned() },
            Match::Schedule { task: "mail".to_owned(), name: "nightly".to_owned() }
        ]
    );
    assert!(nightly.is_exact && nightly.unread.is_empty());
    let (workflow, id) = ("nightly".to_owned(), "2026-11-29".to_owned());
    assert_eq!(of("2026-11-29").await.matches, [Match::Instance { workflow, id, state: WorkflowState::Running }]);

    let part = of("EXP").await;
    assert!(!part.is_exact && part.matches == [Match::Task { task: "export".to_owned() }], "{part:?}");
    assert!(of("not a name of anything").await.matches.is_empty());
    for text in ["", "  ", &"x".repeat(513)] {
        assert!(matches!(inspector.find(text).await, Err(Error::Config(_))), "{text}");
    }
    let json = serde_json::to_value(of("order-8").await).unwrap();
    assert_eq!((&json["matches"][0]["kind"], &json["matches"][0]["state"]), (&"job".into(), &"waiting".into()));
}
