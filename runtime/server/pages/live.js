// Replaces the content with a newer one while the page is looked at. Without
// this script the page reloads as a whole.
(() => {
  const period = 2000;
  const box = document.getElementById('live');
  const text = document.getElementById('live-text');
  const button = document.getElementById('live-button');
  let paused = false;
  let answered = new Date();

  const reading = () => {
    const selection = document.getSelection();
    return selection && !selection.isCollapsed;
  };

  const replace = (fresh) => {
    const main = document.getElementById('main');
    const toggled = [...main.querySelectorAll('details[id]')].map((d) => [d.id, d.open]);
    const scrolled = [...main.querySelectorAll('.scroll, pre')].map((e) => e.scrollLeft);
    const focused = main.contains(document.activeElement) && document.activeElement;
    const path = focused && trail(main, focused);
    main.replaceWith(fresh);
    for (const [id, open] of toggled) {
      const details = document.getElementById(id);
      if (details) details.open = open;
    }
    fresh.querySelectorAll('.scroll, pre').forEach((e, i) => { e.scrollLeft = scrolled[i] || 0; });
    if (path) follow(fresh, path)?.focus({ preventScroll: true });
  };

  // trail says where in root an element is, so that follow finds the one that
  // has taken its place.
  const trail = (root, element) => {
    const path = [];
    for (let e = element; e !== root; e = e.parentElement) path.unshift([...e.parentElement.children].indexOf(e));
    return path;
  };
  const follow = (root, path) => path.reduce((e, i) => e && e.children[i], root);

  const say = (message, bad) => {
    if (text.textContent !== message) text.textContent = message;
    box.classList.toggle('bad', bad);
    document.body.classList.toggle('stale', bad);
  };

  const refresh = async () => {
    if (paused || document.hidden || reading()) return;
    try {
      const answer = await fetch(location.href, {
        headers: { Accept: 'text/html' }, cache: 'no-store', signal: AbortSignal.timeout(10000),
      });
      if (!answer.ok) throw new Error(`${answer.status} ${answer.statusText}`);
      const page = new DOMParser().parseFromString(await answer.text(), 'text/html');
      const fresh = page.getElementById('main');
      if (!fresh || paused || reading()) return;
      replace(document.adoptNode(fresh));
      document.title = page.title;
      answered = new Date();
      say('Live', false);
    } catch (error) {
      say(`No answer since ${answered.toLocaleTimeString()} (${error.message})`, true);
    }
  };

  const loop = async () => {
    await refresh();
    setTimeout(loop, period);
  };

  button.addEventListener('click', () => {
    paused = !paused;
    button.textContent = paused ? 'Resume' : 'Pause';
    say(paused ? 'Paused' : 'Live', false);
    if (!paused) refresh();
  });
  document.addEventListener('visibilitychange', refresh);
  box.hidden = false;
  say('Live', false);
  setTimeout(loop, period);
})();
