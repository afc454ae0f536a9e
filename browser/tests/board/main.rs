//! The board in a real browser, on real servers, with workers that are really killed.
//!
//! All parts share one browser and run one after the other; the output names each. A word on the command line chooses
//! the parts whose names contain it: `cargo test -p heartline-browser-tests -- keyboard`.
#![allow(missing_docs, missing_debug_implementations, clippy::unwrap_used, clippy::expect_used)]

mod acts;
mod browser;
mod demo;
mod flows;
mod hostile;
mod keys;
mod looks;
mod many;
mod plain;
mod schedules;
mod site;
mod tour;
mod world;

use std::pin::Pin;
use std::process::ExitCode;
use std::rc::Rc;
use std::time::Instant;

use crate::browser::Browser;
use crate::world::World;

type Part = fn(Rc<World>) -> Pin<Box<dyn Future<Output = ()>>>;

macro_rules! parts {
    ($($part:path),* $(,)?) => {
        [$((stringify!($part), (|world| Box::pin($part(world))) as Part)),*]
    };
}

const PARTS: &[(&str, Part)] = &parts![
    demo::an_open_page_shows_the_stalls_of_a_killed_worker,
    demo::every_page_opens_from_the_navigation,
    demo::the_overview_updates_without_a_reload,
    demo::the_heartbeat_table_names_the_workers,
    demo::pictures_are_taken_in_light_and_dark,
    demo::no_page_of_the_demo_scrolls_sideways_on_a_phone,
    demo::the_demo_ends_without_a_lost_job,
    acts::a_job_can_be_retried_run_now_cancelled_and_removed,
    acts::a_job_runs_again_as_a_copy_and_with_another_input,
    acts::an_action_by_filter_asks_with_the_number_of_jobs,
    acts::selected_jobs_are_retried_and_the_page_waits_meanwhile,
    acts::a_task_is_paused_with_a_reason_and_resumed,
    acts::damage_is_found_previewed_and_repaired,
    acts::a_person_requeues_or_fails_jobs_of_a_killed_worker,
    acts::a_worker_is_made_quiet_and_claims_again,
    acts::declaring_a_killed_worker_dead_requeues_its_jobs,
    acts::a_user_with_the_token_signs_in_and_out,
    flows::a_graph_is_shown_updates_itself_and_offers_actions,
    flows::a_graph_fits_a_phone_and_gets_a_picture,
    flows::failed_instances_are_selected_and_retried,
    schedules::a_schedule_is_found_paused_and_run_by_hand,
    schedules::an_open_page_shows_the_ticks_of_a_worker,
    schedules::pages_of_schedules_fit_a_phone_and_need_no_script,
    keys::tab_reaches_every_link_and_the_skip_link_comes_first,
    keys::the_keyboard_alone_filters_moves_opens_and_pages,
    keys::the_find_box_opens_a_job_by_its_id,
    keys::focus_survives_a_live_update,
    keys::focus_stays_on_one_of_several_links_to_a_page,
    keys::typed_text_survives_a_live_update,
    looks::no_page_scrolls_sideways_on_a_phone,
    looks::the_table_of_tasks_is_visible_under_ten_troubles,
    looks::text_is_readable_in_light_and_dark,
    plain::pages_filters_and_actions_need_no_script,
    plain::a_long_action_shows_progress_without_script,
    hostile::markup_is_text_wherever_it_comes_from,
    hostile::forms_of_other_origins_are_refused,
    hostile::nothing_is_shown_under_the_name_of_another_site,
    hostile::odd_ids_open_their_own_jobs,
    many::a_million_jobs_cost_no_more_than_a_hundred,
    hostile::no_page_violates_our_content_policy,
];

/// Parts that need something that is not in the repository, or write into it: only if asked for by name.
const ON_REQUEST: &[(&str, Part)] = &parts![tour::axe_finds_nothing_serious, tour::every_page_gets_a_picture];

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    if let [word, url] = args.as_slice()
        && word == site::WORKER
    {
        runtime.block_on(site::work(url));
        return ExitCode::SUCCESS;
    }
    let words: Vec<&String> = args.iter().filter(|arg| !arg.starts_with('-')).collect();
    let is_named = |name: &str| words.iter().any(|word| name.contains(*word));
    let usual = PARTS.iter().filter(|(name, _)| words.is_empty() || is_named(name));
    let chosen: Vec<_> = usual.chain(ON_REQUEST.iter().filter(|(name, _)| is_named(name))).collect();
    tokio::task::LocalSet::new().block_on(&runtime, async {
        let browser = match Browser::start().await {
            Ok(browser) => browser,
            Err(missing) => {
                eprintln!("{missing}");
                return ExitCode::FAILURE;
            }
        };
        let world = Rc::new(World::new(browser));
        let (begun, mut failed) = (Instant::now(), Vec::new());
        for (name, part) in &chosen {
            let begun = Instant::now();
            world.browser.reset().await;
            let ended = tokio::task::spawn_local(part(Rc::clone(&world))).await.map_err(|e| e.to_string());
            let took = begun.elapsed().as_secs_f64();
            world.complaints().await;
            match ended {
                Ok(()) => println!("{name} ... ok ({took:.1} s)"),
                Err(why) => {
                    println!("{name} ... FAILED ({took:.1} s): {why}\n{}", world.browser.description().await);
                    failed.push(*name);
                }
            }
        }
        world.end().await;
        println!(
            "{} of {} passed in {:.0} s",
            chosen.len() - failed.len(),
            chosen.len(),
            begun.elapsed().as_secs_f64()
        );
        if failed.is_empty() {
            ExitCode::SUCCESS
        } else {
            println!("failed: {}", failed.join(", "));
            ExitCode::FAILURE
        }
    })
}
