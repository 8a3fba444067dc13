{
  const data = JSON.parse(document.querySelector("#sliders-data").textContent);
  const form = document.querySelector(".sliders"), told = closedForm(data);
  const number = (x) => x >= 1000 ? String(Math.round(x)) : String(Number(x.toPrecision(4)));
  const rate = (x) => {
    const [size, unit] = [[1e9, "G"], [1e6, "M"]].find(([least]) => x >= least) || [1, ""];
    return `${Number((x / size).toPrecision(3))} ${unit}bit/s`;
  };
  const stops = { workers: data.workers, servers: data.workers, links: data.bandwidths, batch: data.batches };
  const [workers, links, batch] = data.begin, begin = { workers, servers: Infinity, links, batch };
  const chosen = (name) => stops[name][form.elements[name].value];
  const overlaps = (one, other) => one.rate !== null && other.rate !== null && other.high >= one.low;
  const show = () => {
    const count = chosen("workers");
    const rows = data.settings.map((setting) => {
      const fits = setting.held.map(([each]) => each).filter((each) => each <= Math.min(count, chosen("servers")));
      const servers = fits.length ? Math.max(...fits) : 0;
      return { setting, servers, ...told(setting, count, servers, chosen("links"), chosen("batch")) };
    });
    const best = rows.reduce((most, each) => ((each.rate || 0) > (most.rate || 0) ? each : most));
    const rivals = rows.filter((each) => each === best || overlaps(best, each));
    const cells = ({ setting, servers, rate: mean, low, high, bound, efficiency, limit }, row) => [
      setting.name,
      servers || "-",
      mean === null ? "bound only" : `${number(mean)} [${number(low)}, ${number(high)}]`,
      number(bound),
      mean === null ? "-" : efficiency.toFixed(2),
      limit,
      mean === null || !rivals.includes(rows[row]) ? "" : rivals.length > 1 ? "may be fastest" : "fastest",
    ];
    const body = form.querySelector("tbody"), names = [...form.querySelectorAll("th")].map((each) => each.textContent);
    body.replaceChildren(...rows.map((each, row) => {
      const line = document.createElement("tr");
      line.setAttribute("role", "row");
      line.append(...cells(each, row).map((text, column) => {
        const cell = document.createElement("td");
        cell.textContent = text;
        cell.setAttribute("role", "cell");
        if (column) cell.dataset.name = names[column];
        return cell;
      }));
      return line;
    }));
    for (const output of form.querySelectorAll("output")) {
      const value = chosen(output.htmlFor.value);
      output.value = output.htmlFor.value === "links" ? rate(value) : value;
    }
  };
  for (const [name, own] of Object.entries(stops)) {
    form.elements[name].max = own.length - 1;
    form.elements[name].value = own.filter((each) => each <= begin[name]).length - 1;
  }
  form.querySelector("caption").textContent = `Rates: ${data.unit} per second.`;
  form.addEventListener("input", show);
  form.hidden = false;
  show();
}
