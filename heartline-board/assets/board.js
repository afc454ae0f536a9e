// Keeps the page up to date: it is asked for again, and what stands in <main> is put in place of what stood there. Less often when it
// cannot be reached, not at all while nobody sees it, somebody types, or text is selected.
const least = 2000, most = 60000;
let pause = least;

const isBusy = () => document.hidden || document.body.dataset.live !== "yes"
  || (document.activeElement && document.activeElement.closest("form"))
  || String(document.getSelection()) !== "";

async function look() {
  if (!isBusy()) {
    try {
      const answer = await fetch(location.href, { redirect: "error" });
      if (!answer.ok) throw new Error(String(answer.status));
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      const [there, here] = [page.querySelector("main"), document.querySelector("main")];
      if (there && !isBusy() && there.innerHTML !== here.innerHTML) here.replaceWith(there);
      document.body.classList.remove("stale");
      pause = least;
    } catch {
      document.body.classList.add("stale");
      pause = Math.min(2 * pause, most);
    }
  }
  setTimeout(look, pause);
}

setTimeout(look, pause);
