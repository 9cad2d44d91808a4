"use strict";
for (const group of document.querySelectorAll(".group")) {
  const data = JSON.parse(group.querySelector(".data").textContent);
  const pieces = [...group.querySelectorAll(".p")];
  const panel = group.querySelector(".document");
  const panels = [...group.querySelectorAll(".summary[data-summary]")];
  let pinned = null; // a tapped word stays lit until something else is tapped

  const clear = () => {
    for (const piece of group.querySelectorAll(".p.hit")) { piece.classList.remove("hit"); piece.style.removeProperty("--weight"); }
    for (const word of group.querySelectorAll(".w.on, .w.lit")) word.classList.remove("on", "lit");
  };
  const percent = (share) => Math.round(100 * share) + "%";
  const say = (place, word) => {
    place.textContent = "";
    const bold = document.createElement("b");
    bold.textContent = word.t;
    const kind = { copied: "copied", generated: "generated", unknown: "unknown word" }[word.k];
    let facts = " · " + kind + " · probability " + (word.p >= 0.005 ? word.p.toFixed(2) : "below 0.01");
    if (word.g !== null) facts += " · p_gen " + word.g.toFixed(2) + " · " + percent(word.c) + " of it copied";
    place.append(bold, facts);
    if (!word.s.length) return;
    place.append(document.createElement("br"), word.k === "copied" ? "copied from " : "looked at ");
    word.s.forEach(([, text, weight], i) => {
      const quote = document.createElement("q");
      quote.textContent = text;
      place.append(i ? ", " : "", quote, " " + percent(weight));
    });
  };
  const light = (number, index, scroll) => {
    const word = data[number].words[index];
    clear();
    panels[number].querySelector(`.w[data-word="${index}"]`).classList.add("on");
    const most = Math.max(...word.s.map((source) => source[2]), 1e-6);
    for (const [touched, , weight] of word.s) {
      for (const i of touched) {
        pieces[i].classList.add("hit");
        pieces[i].style.setProperty("--weight", (0.15 + 0.65 * weight / most).toFixed(3));
      }
    }
    say(panels[number].querySelector(".inspector"), word);
    const first = word.s.length && word.s[0][0].length ? pieces[word.s[0][0][0]] : null;
    if (scroll && first && panel.scrollHeight > panel.clientHeight)
      panel.scrollTop = first.offsetTop - panel.offsetTop - panel.clientHeight / 3;
  };
  const restore = () => { clear(); if (pinned) light(...pinned, false); };

  panels.forEach((summary, number) => {
    const words = [...summary.querySelectorAll(".w[data-word]")];
    words.forEach((element, position) => {
      const index = Number(element.dataset.word);
      element.addEventListener("mouseenter", () => light(number, index, false));
      element.addEventListener("mouseleave", restore);
      element.addEventListener("focus", () => { pinned = [number, index]; light(number, index, true); });
      element.addEventListener("click", () => { pinned = [number, index]; light(number, index, true); });
      element.addEventListener("keydown", (event) => {
        const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
        if (event.key === "Escape") { pinned = null; element.blur(); clear(); return; }
        const next = step && words[position + step];
        if (!next) return;
        event.preventDefault();
        element.tabIndex = -1;
        next.tabIndex = 0;
        next.focus();
      });
    });
    const heat = summary.querySelector(".heat");
    if (heat) heat.addEventListener("toggle", () => { if (heat.open) draw(number, heat); });
    if (heat && heat.open) requestAnimationFrame(() => draw(number, heat));
    for (const dot of summary.querySelectorAll("circle[data-word]")) {
      const index = Number(dot.dataset.word.split(":")[1]);
      const gated = data[number].words.map((word, i) => [word, i]).filter(([word]) => word.g !== null);
      dot.addEventListener("mouseenter", () => light(number, gated[index][1], false));
      dot.addEventListener("mouseleave", restore);
    }
  });

  // the reverse: which words of which summaries came from here
  const users = pieces.map(() => []);
  data.forEach((summary, number) => summary.words.forEach((word, index) => {
    for (const [touched] of word.s) for (const i of touched) users[i].push([number, index]);
  }));
  pieces.forEach((piece, i) => {
    const show = () => {
      clear();
      for (const [number, index] of users[i]) panels[number].querySelector(`.w[data-word="${index}"]`).classList.add("lit");
    };
    piece.addEventListener("mouseenter", show);
    piece.addEventListener("mouseleave", restore);
    piece.addEventListener("click", () => { pinned = null; show(); });
  });

  const draw = (number, heat) => {
    const { words, columns } = data[number];
    const canvas = heat.querySelector("canvas"), readout = heat.querySelector(".readout");
    const style = getComputedStyle(document.documentElement), scale = window.devicePixelRatio || 1;
    const row = 18, left = 110, width = heat.clientWidth - left;
    const cell = Math.max(3, Math.min(18, Math.floor(width / columns.length)));
    canvas.style.width = left + cell * columns.length + "px";
    canvas.style.height = row * words.length + "px";
    canvas.width = (left + cell * columns.length) * scale;
    canvas.height = row * words.length * scale;
    const pen = canvas.getContext("2d");
    pen.scale(scale, scale);
    pen.font = "12px system-ui, sans-serif";
    pen.textBaseline = "middle";
    words.forEach((word, y) => {
      const text = word.t.length > 14 ? word.t.slice(0, 13) + "…" : word.t;
      pen.fillStyle = style.getPropertyValue(word.k === "copied" ? "--copied" : "--ink");
      pen.fillText(text, 2, row * y + row / 2);
      const most = Math.max(...word.a, 1e-6);
      word.a.forEach((weight, x) => {
        pen.fillStyle = `rgba(${style.getPropertyValue("--heat")}, ${(0.04 + 0.96 * weight / most).toFixed(3)})`;
        pen.fillRect(left + cell * x, row * y + 1, cell - (cell > 5 ? 1 : 0), row - 2);
      });
    });
    canvas.onmousemove = (event) => {
      const x = Math.floor((event.offsetX - left) / cell), y = Math.floor(event.offsetY / row);
      if (x < 0 || x >= columns.length || !words[y]) return;
      const piece = columns[x].length ? pieces[columns[x][0]] : null;
      light(number, y, false);
      if (piece) { piece.classList.add("hit"); piece.style.setProperty("--weight", "0.9"); }
      readout.textContent = `${words[y].t} ← ${piece ? piece.textContent : "(special token)"}: ${percent(words[y].a[x])}`;
    };
    canvas.onmouseleave = restore;
  };
}
