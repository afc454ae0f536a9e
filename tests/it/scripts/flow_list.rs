use crate::scripts::call::Task;
use crate::scripts::flow::line;

#[tokio::test]
async fn instances_in_a_place_are_listed_in_pages_without_children() {
    let mut task = Task::new().await;
    for (at, id) in ["a", "b", "b/0.1", "c"].into_iter().enumerate() {
        task.put(&line(), id).await;
        task.zadd("running", 5.0 + at as f64, id).await;
    }
    task.write("stopping c=failed ; instances b=what, a=1 0 3 1 d 1 77; error b=late; value a/1=no").await;
    let before = task.exact().await;
    let mut page = async |newest: &str, cursor: &str, look: &str| {
        task.ok_at("running", "flow_list", &[newest, cursor, look]).await
    };
    assert_eq!(page("1", "", "2").await, "[page 7 b/0.1 c 8 1 3 1 1 0 - '' '']");
    assert_eq!(page("1", "7 b/0.1", "2").await, "[page '' b 6 0 0 0 0 0 - '' late a 5 1 3 1 0 77 1 no '']");
    assert_eq!(
        page("0", "", "10").await,
        "[page '' a 5 1 3 1 0 77 1 no '' b 6 0 0 0 0 0 - '' late c 8 1 3 1 1 0 - '' '']"
    );
    assert_eq!(task.exact().await, before);
}
