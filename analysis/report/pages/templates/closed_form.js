// The closed form of analysis/predict: symmetric.py, models.py and predictions.py, in their order.
"use strict";
const closedForm = (data) => {
  const { rule } = data;
  const joined = (x, y, exponent) => {
    const larger = Math.max(x, y), smaller = Math.min(x, y);
    return larger > 0 ? larger * (1 + (smaller / larger) ** exponent) ** (1 / exponent) : 0;
  };
  const carried = (form, workers, most, least) => {
    const { size, pushed } = form;
    if (!form.has_servers) {
      const each = 2 * (workers - 1) / workers * size * pushed;
      return [each, 2 * each, workers * each];
    }
    const ways = [most, least].map((own) => [
      pushed * (size - own) + (workers - 1) * own,
      size - own + pushed * (workers - 1) * own,
    ]);
    return [
      Math.max(...ways.flat()),
      (1 + pushed) * (size + workers * most),
      workers * size * (1 + pushed),
    ];
  };
  const loadOf = (form, workers, held, bytesPerS, examples, cpu) => {
    const [busiest, ofHost, all] = carried(form, workers, ...held);
    const wanted = form.wanted * (form.shares_cores ? workers : 1);
    const message = !form.message_grows ? form.message
      : Math.min(1, held[0] ? form.message / held[0] : form.message * workers);
    return {
      forward: form.forward_s + examples * form.forward_each_s,
      backward: form.backward_s + examples * form.backward_each_s,
      network: busiest / bytesPerS,
      messages: cpu * (form.shares_cores ? 2 * all : ofHost),
      rounds: form.has_servers ? 0 : 2 * (workers - 1),
      crowd: wanted > 1 ? wanted * form.crowding : 1,
      busy: Math.min(1, wanted),
      spread: form.spread * data.largest[data.workers.indexOf(workers)],
      message,
      ways: form.has_servers ? 2 : 1,
      sends: workers > 1 || form.has_servers ? 1 : 0,
    };
  };
  const stepOf = (load, [stretch, overhead, hiding, round]) => {
    const slowest = load.crowd * (1 + load.spread);
    const sent = stretch * load.network + load.rounds * round;
    const backward = load.backward * slowest;
    const exposed = load.message * (backward + load.ways * sent)
      + (1 - load.message) * joined(backward, sent, hiding);
    const computed = load.busy * load.crowd * load.backward;
    const exchanged = computed + joined(exposed - computed, load.messages, rule.both);
    return load.sends * overhead + load.forward * slowest + exchanged;
  };
  const quantile = (sorted, share) => {
    const place = share * (sorted.length - 1), below = Math.floor(place);
    const above = Math.min(below + 1, sorted.length - 1);
    return sorted[below] + (place - below) * (sorted[above] - sorted[below]);
  };
  const sidesOf = (setting, load, further) => {
    const [best, ...drawn] = setting.fits.map((fit) => Math.log(stepOf(load, fit)));
    const times = drawn.length ? drawn.sort((x, y) => x - y) : [best];
    const quick = quantile(times, 0.05) - best, slow = quantile(times, 0.95) - best;
    const growth = rule.side * (1 + Math.max(0, Math.log2(further))), { missed } = setting;
    const noise = rule.noise * growth;
    const own = Math.max(rule.noise, missed === null ? rule.untested : Math.abs(missed)) * growth;
    return [
      Math.hypot(Math.max(0, slow), missed === null || missed < 0 ? own : noise),
      Math.hypot(Math.max(0, -quick), missed === null || missed >= 0 ? own : noise),
    ];
  };
  const limitOf = (load, [stretch]) => {
    const alone = (load.forward + load.backward) * load.crowd, isCrowded = load.crowd > 1;
    const parts = [
      ["computation", isCrowded ? 0 : alone],
      ["links", stretch * load.network],
      ["processors", Math.max(load.messages, isCrowded ? alone : 0)],
    ];
    return parts.reduce((most, each) => (each[1] > most[1] ? each : most))[0];
  };
  return (setting, workers, servers, bitsPerS, batch) => {
    const { form, fits } = setting, examples = workers * batch;
    const [, most, least] = setting.held.find(([count]) => count === servers) || [0, 0, 0];
    const held = [most, servers >= workers ? least : 0], rate = bitsPerS * setting.share / 8;
    const load = loadOf(form, workers, held, rate, batch, form.cpu_s);
    const bare = { ...loadOf(form, workers, held, rate, batch, 0), message: 0 };
    const further = workers / setting.calibrated, made = examples / stepOf(load, fits[0]);
    const bound = examples / stepOf(bare, rule.perfect), limit = limitOf(load, fits[0]);
    if (further > rule.furthest) return { rate: null, bound, limit };
    const [slower, faster] = sidesOf(setting, load, further);
    const efficiency = made * (load.forward + load.backward) / examples;
    const low = made * Math.exp(-slower), high = made * Math.exp(faster);
    return { rate: made, low, high, bound, efficiency, limit };
  };
};
