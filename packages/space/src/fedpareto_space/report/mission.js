// The moving parts of a mission's page: satellites over the map, and their contacts as a chart to look into.
"use strict";
(() => {
  const data = JSON.parse(document.getElementById("mission-data").textContent);
  const element = id => document.getElementById(id);
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const still = matchMedia("(prefers-reduced-motion: reduce)");
  const tone = name => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
  const radians = Math.PI / 180;
  const TURNING = 360 / 86164.0905;
  const DOING = ["waiting", "receiving", "training", "sending"];

  // Flat lists of whole seconds become lists of spans that know their end.
  const spans = (flat, width) => {
    const found = [];
    let start = 0;
    for (let i = 0; i < flat.length; i += width) {
      start += flat[i];
      found.push([start, start + flat[i + 1], flat[i + 2], flat[i + 3]]);
    }
    return found;
  };
  const contacts = data.contacts.map(flat => spans(flat, 3));
  const transfers = data.transfers.map(flat => spans(flat, 4));
  const training = data.training.map(flat => spans(flat, 2));
  const colour = (list, place) => list[place % list.length];
  const clock = seconds => {
    const whole = Math.max(0, Math.round(seconds));
    const two = number => String(number).padStart(2, "0");
    return `${Math.floor(whole / 3600)}:${two(Math.floor(whole / 60) % 60)}:${two(whole % 60)}`;
  };

  // The last span that began by then, if it is not over.
  const during = (list, time) => {
    let low = 0, high = list.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (list[middle][0] <= time) low = middle + 1; else high = middle;
    }
    // Spans of one satellite hardly overlap; a few before the last are enough.
    for (let i = low - 1; i >= Math.max(0, low - 4); i--) if (time < list[i][1]) return list[i];
    return null;
  };
  const doing = (satellite, time) => {
    const moved = during(transfers[satellite], time);
    if (moved) return moved[3] ? 3 : 1;
    return during(training[satellite], time) ? 2 : 0;
  };

  let now = 0;
  const watchers = [];
  const moveTo = time => {
    now = Math.min(Math.max(time, 0), data.seconds);
    watchers.forEach(watch => watch());
  };

  const fitted = (canvas, width, height) => {
    const ratio = window.devicePixelRatio || 1;
    if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
      canvas.width = Math.round(width * ratio);
      canvas.height = Math.round(height * ratio);
    }
    const context = canvas.getContext("2d");
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, width, height);
    return context;
  };

  // -- the map ------------------------------------------------------------------------------------------------------

  const startMap = () => {
    const canvas = element("sky"), slider = element("time"), play = element("play"), shown = element("now");
    const speed = element("speed"), colouring = element("colouring"), counts = element("counts");
    const end = Math.min(data.seconds, data.tracks.step * (data.tracks.latitude[0].length - 1));
    const whole = list => { let sum = 0; return list.map(step => (sum += step) / 10); };
    const latitude = data.tracks.latitude.map(whole), longitude = data.tracks.longitude.map(whole);
    slider.max = end;
    slider.step = 30;

    // Along a great circle under which the Earth turns, as in globe.py.
    const place = (satellite, time) => {
      const low = Math.min(Math.floor(time / data.tracks.step), latitude[satellite].length - 2);
      const share = time / data.tracks.step - low;
      const vector = i => {
        const north = latitude[satellite][i] * radians;
        const east = (longitude[satellite][i] + TURNING * i * data.tracks.step) * radians;
        return [Math.cos(north) * Math.cos(east), Math.cos(north) * Math.sin(east), Math.sin(north)];
      };
      const a = vector(low), b = vector(low + 1);
      const angle = Math.max(Math.acos(Math.min(1, a[0] * b[0] + a[1] * b[1] + a[2] * b[2])), 1e-9);
      const [p, q] = [Math.sin((1 - share) * angle) / Math.sin(angle), Math.sin(share * angle) / Math.sin(angle)];
      const [x, y, z] = [0, 1, 2].map(i => p * a[i] + q * b[i]);
      const east = Math.atan2(y, x) / radians - TURNING * time;
      return [((east + 180) % 360 + 360) % 360 - 180, Math.asin(Math.max(-1, Math.min(1, z))) / radians];
    };

    // Where the Sun is overhead: mean longitude and anomaly, to a hundredth of a degree in this century.
    const sun = time => {
      const days = (data.start + 1000 * time - Date.UTC(2000, 0, 1, 12)) / 86400000;
      const anomaly = (357.528 + 0.9856003 * days) * radians;
      const along = (280.46 + 0.9856474 * days + 1.915 * Math.sin(anomaly) + 0.02 * Math.sin(2 * anomaly)) * radians;
      const tilt = 23.439 * radians;
      const north = Math.asin(Math.sin(tilt) * Math.sin(along));
      const right = Math.atan2(Math.cos(tilt) * Math.sin(along), Math.cos(along)) / radians;
      return [right - (280.46062 + 360.98564737 * days), north];
    };

    const draw = () => {
      const width = canvas.clientWidth, height = width / 2;
      const context = fitted(canvas, width, height);
      const x = east => (east + 180) / 360 * width, y = north => (90 - north) / 180 * height;
      const [east, north] = sun(Math.min(now, end));
      const pole = north > 0 ? -90 : 90;
      context.beginPath();
      context.moveTo(0, y(pole));
      for (let at = -180; at <= 180; at += 2) {
        context.lineTo(x(at), y(Math.atan(-Math.cos((at - east) * radians) / Math.tan(north)) / radians));
      }
      context.lineTo(width, y(pole));
      context.fillStyle = dark.matches ? "rgba(0,0,0,.38)" : "rgba(20,30,60,.17)";
      context.fill();
      const size = Math.max(3, Math.min(5, width / 200)), by = colouring.value, around = tone("paper");
      data.satellites.forEach((name, satellite) => {
        const [east, north] = place(satellite, Math.min(now, end));
        const contact = during(contacts[satellite], now), state = doing(satellite, now);
        const station = contact && data.stations[contact[2]];
        if (station && station.longitude !== null) {
          let away = station.longitude - east;
          away -= 360 * Math.round(away / 360);
          context.strokeStyle = colour(data.palette, contact[2]);
          context.lineWidth = during(transfers[satellite], now) ? 2 : 0.8;
          for (const turn of [0, away > 0 ? -360 : 360]) {
            context.beginPath();
            context.moveTo(x(east + turn), y(north));
            context.lineTo(x(east + away + turn), y(station.latitude));
            context.stroke();
          }
        }
        context.beginPath();
        context.arc(x(east), y(north), size, 0, 2 * Math.PI);
        context.fillStyle = by === "plane" ? colour(data.palette, data.planes[satellite]) : data.states[state];
        context.fill();
        context.lineWidth = 1;
        context.strokeStyle = around;
        context.stroke();
      });
      shown.textContent = `${clock(now)} h`;
      slider.value = now;
      slider.setAttribute("aria-valuetext", `${clock(now)} hours`);
      const found = [0, 0, 0, 0];
      data.satellites.forEach((_, satellite) => found[doing(satellite, now)]++);
      counts.querySelectorAll("b").forEach((entry, i) => { entry.textContent = found[i]; });
    };

    let playing = false, last = 0;
    const step = moment => {
      if (!playing) return;
      const gone = (moment - last) / 1000;
      // Who wants no motion sees one picture a second.
      if (!still.matches || gone >= 1) {
        last = moment;
        moveTo(now + Math.min(gone, 1) * Number(speed.value));
        if (now >= end) toggle();
      }
      requestAnimationFrame(step);
    };
    const toggle = () => {
      playing = !playing;
      play.textContent = playing ? "Pause" : "Play";
      if (!playing) return;
      if (now >= end) moveTo(0);
      last = performance.now();
      requestAnimationFrame(step);
    };
    play.addEventListener("click", toggle);
    slider.addEventListener("input", () => moveTo(Number(slider.value)));
    colouring.addEventListener("change", () => { counts.hidden = colouring.value !== "doing"; draw(); });
    element("tracks").addEventListener("change", event => {
      document.querySelectorAll("#map [id*='track-']").forEach(line => {
        line.style.display = event.target.checked ? "" : "none";
      });
    });
    canvas.addEventListener("keydown", event => {
      const far = event.shiftKey ? 600 : 60;
      const keys = { " ": toggle, ArrowLeft: () => moveTo(now - far), ArrowRight: () => moveTo(now + far),
        Home: () => moveTo(0), End: () => moveTo(end) };
      if (!keys[event.key]) return;
      event.preventDefault();
      keys[event.key]();
    });
    watchers.push(draw);
    new ResizeObserver(draw).observe(canvas);
    draw();
  };

  // -- contacts -----------------------------------------------------------------------------------------------------

  const startChart = () => {
    const canvas = element("chart"), readout = element("readout");
    const row = data.satellites.length > 60 ? 11 : 15, top = 24, left = 84;
    const height = top + row * data.satellites.length + 6;
    canvas.style.height = `${height}px`;
    let begin = 0, length = Math.min(data.seconds, (canvas.clientWidth < 600 ? 6 : 24) * 3600);

    const look = (from, long) => {
      length = Math.min(Math.max(long, 600), data.seconds);
      begin = Math.min(Math.max(from, 0), data.seconds - length);
      draw();
    };
    const across = time => left + (time - begin) / length * (canvas.clientWidth - left);
    const draw = () => {
      const width = canvas.clientWidth, context = fitted(canvas, width, height);
      context.font = "11px system-ui, sans-serif";
      context.textBaseline = "middle";
      const [ink, soft, edge] = ["ink", "soft", "edge"].map(tone);
      const steps = [60, 300, 600, 1800, 3600, 7200, 10800, 21600, 43200, 86400];
      const every = steps.find(one => one / length * (width - left) >= 56) || 172800;
      for (let time = Math.ceil(begin / every) * every; time <= begin + length; time += every) {
        context.strokeStyle = edge;
        context.lineWidth = 1;
        context.beginPath();
        context.moveTo(Math.round(across(time)) + 0.5, top - 4);
        context.lineTo(Math.round(across(time)) + 0.5, height);
        context.stroke();
        context.fillStyle = soft;
        context.textAlign = "center";
        const label = every < 3600 ? clock(time).slice(0, -3) : `${time / 3600} h`;
        if (across(time) < width - 14) context.fillText(label, Math.max(across(time), left + 8), 10);
      }
      const bar = (span, y, tall) => {
        const from = Math.max(across(span[0]), left), to = Math.min(across(span[1]), width);
        if (to >= left && from <= width) context.fillRect(from, y, Math.max(to - from, 0.7), tall);
      };
      data.satellites.forEach((name, satellite) => {
        const y = top + row * satellite;
        context.fillStyle = ink;
        context.textAlign = "left";
        context.fillText(name.length > 13 ? `${name.slice(0, 12)}…` : name, 0, y + row / 2);
        context.fillStyle = edge;
        context.fillRect(left, y + row - 1, width - left, 0.5);
        for (const span of contacts[satellite]) {
          context.globalAlpha = 0.32;
          context.fillStyle = colour(data.palette, span[2]);
          bar(span, y + 1, row - 3);
        }
        context.globalAlpha = 1;
        for (const span of transfers[satellite]) {
          context.fillStyle = colour(data.palette, span[2]);
          bar(span, y + 2 + (span[3] ? (row - 4) / 2 : 0), (row - 6) / 2);
        }
        for (const [time, who] of data.faults) {
          if (who !== satellite || time < begin || time > begin + length) continue;
          context.strokeStyle = data.bad;
          context.lineWidth = 2;
          context.beginPath();
          for (const [a, b] of [[-4, 4], [4, -4]]) {
            context.moveTo(across(time) - 4, y + row / 2 + a);
            context.lineTo(across(time) + 4, y + row / 2 + b);
          }
          context.stroke();
        }
      });
      if (now >= begin && now <= begin + length) {
        context.fillStyle = ink;
        context.fillRect(across(now) - 0.5, top - 6, 1.5, height);
      }
    };

    const told = (satellite, time) => {
      const contact = during(contacts[satellite], time), moved = during(transfers[satellite], time);
      const parts = [`${data.satellites[satellite]} at ${clock(time)}: ${DOING[doing(satellite, time)]}`];
      if (contact) {
        parts.push(`sees ${data.stations[contact[2]].name} from ${clock(contact[0])} to ${clock(contact[1])}`);
      }
      if (moved) parts.push(`${moved[3] ? "reply" : "task"} from ${clock(moved[0])} to ${clock(moved[1])}`);
      return parts.join("; ");
    };
    const pointed = event => {
      const box = canvas.getBoundingClientRect();
      const satellite = Math.floor((event.clientY - box.top - top) / row);
      const time = begin + (event.clientX - box.left - left) / (box.width - left) * length;
      return satellite >= 0 && satellite < data.satellites.length && time >= begin ? [satellite, time] : null;
    };
    let held = null;
    canvas.addEventListener("pointerdown", event => { held = [event.clientX, begin, false]; });
    canvas.addEventListener("pointermove", event => {
      const at = pointed(event);
      if (at) readout.textContent = told(...at);
      if (!held || event.pointerType === "touch") return;
      const far = event.clientX - held[0];
      held[2] = held[2] || Math.abs(far) > 3;
      look(held[1] - far / (canvas.clientWidth - left) * length, length);
    });
    window.addEventListener("pointerup", event => {
      if (held && !held[2] && event.target === canvas) {
        const at = pointed(event);
        if (at) { readout.textContent = told(...at); moveTo(at[1]); }
      }
      held = null;
    });
    const zoom = factor => look(begin + length / 2 - length * factor / 2, length * factor);
    const ways = { "zoom-in": () => zoom(0.5), "zoom-out": () => zoom(2), earlier: () => look(begin - length / 3, length),
      later: () => look(begin + length / 3, length), everything: () => look(0, data.seconds) };
    Object.entries(ways).forEach(([id, go]) => element(id).addEventListener("click", go));
    canvas.addEventListener("keydown", event => {
      const keys = { "+": "zoom-in", "=": "zoom-in", "-": "zoom-out", ArrowLeft: "earlier", ArrowRight: "later",
        "0": "everything" };
      if (!keys[event.key]) return;
      event.preventDefault();
      ways[keys[event.key]]();
    });
    watchers.push(() => {
      if (now < begin || now > begin + length) begin = Math.min(Math.max(now - length / 8, 0), data.seconds - length);
      draw();
    });
    dark.addEventListener("change", draw);
    new ResizeObserver(draw).observe(canvas);
    draw();
  };

  if (data.tracks) startMap();
  if (element("chart")) startChart();
})();
