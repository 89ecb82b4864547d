// Writes the report as one HTML page.
#include <algorithm>

#include "engine/charts/escape.h"
#include "loadtest/report/report_charts.h"
#include "loadtest/report/run_report.h"

namespace thermocline::loadtest {
namespace {

using charts::EscapeMarkup;

constexpr const char* kStyle = R"(
:root{--bg:#fff;--fg:#1c2430;--dim:#5d6b7c;--line:#dde3ea;--card:#f6f8fa;--good:#1a7f46;--bad:#c0392b;
--c0:#2266bb;--c1:#d9730d;--c2:#1a8f5a;--c3:#9b4dca;--c4:#b8860b;--c5:#c2185b}
@media(prefers-color-scheme:dark){:root{--bg:#12161c;--fg:#e6eaf0;--dim:#93a1b3;--line:#2a323d;--card:#1a2029;
--good:#4fc383;--bad:#ff7a6b;--c0:#69a8f5;--c1:#f2a154;--c2:#5fd09a;--c3:#c79af0;--c4:#e0c060;--c5:#f48fb1}}
body{margin:0 auto;max-width:1200px;padding:24px;background:var(--bg);color:var(--fg);
font:15px/1.5 system-ui,sans-serif}
h1{font-size:22px;margin:0}h2{font-size:17px;margin:32px 0 8px}p{margin:4px 0}.dim{color:var(--dim)}
.cards{display:flex;flex-wrap:wrap;gap:12px;margin:20px 0}
.card{background:var(--card);border:1px solid var(--line);border-radius:8px;padding:10px 16px;min-width:130px}
.card b{display:block;font-size:22px;font-weight:600}.card span{color:var(--dim);font-size:13px}
.wide{overflow-x:auto}table{border-collapse:collapse;font-variant-numeric:tabular-nums;white-space:nowrap}
th,td{padding:4px 12px 4px 0;text-align:right;border-bottom:1px solid var(--line)}
th:first-child,td:first-child,.left{text-align:left}th{color:var(--dim);font-weight:500}
td.text{white-space:normal;overflow-wrap:anywhere;text-align:left}
.good{color:var(--good)}.bad{color:var(--bad)}
.charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,480px),1fr));gap:16px}
svg{width:100%;background:var(--card);border:1px solid var(--line);border-radius:8px}
svg text{fill:var(--dim);font:12px system-ui,sans-serif}svg .title{fill:var(--fg);font-size:14px;font-weight:600}
svg .grid{stroke:var(--line)}svg .frame{fill:none;stroke:var(--line)}svg .line{fill:none;stroke-width:2}
svg .dots{fill-opacity:.6}svg .legend{fill:var(--card);fill-opacity:.85;stroke:var(--line)}
)";

class Page {
 public:
  explicit Page(const RunReport& report) : report_(report) {}

  std::string Write() {
    out_ = StrCat(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta "
        "name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>Load test of ",
        EscapeMarkup(report_.server.model), "</title>\n<style>", kStyle,
        "</style>\n</head>\n<body>\n");
    Head();
    if (!report_.runs.empty()) Runs();
    Configuration();
    return out_ + "</body>\n</html>\n";
  }

 private:
  void Runs() {
    const RunResult& run = report_.main_run();
    Cards(run);
    Slo(run);
    if (report_.several()) Steps();
    Latencies("Latency", run.recorder->all(), true);
    out_ += "<div class=\"charts\">\n" + RunCharts(run) + "</div>\n";
    if (run.recorder->kinds().size() > 1) {
      for (const auto& [kind, figures] : run.recorder->kinds())
        Latencies("Latency of requests of kind “" + kind + "”", figures, false);
    }
    Outcomes(run);
    Server(run);
  }

  void Head() {
    const LoadOptions& o = report_.options;
    out_ +=
        StrCat("<h1>Load test of ", EscapeMarkup(report_.server.model), "</h1>\n<p class=\"dim\">",
               EscapeMarkup(o.url.authority()), ", ", o.open_loop() ? "open" : "closed",
               " loop, workload ", kWorkloadNames[static_cast<std::size_t>(o.workload.kind)], ", ",
               EscapeMarkup(report_.started), ", from ", EscapeMarkup(report_.host), "</p>\n");
    for (const std::string& failure : report_.failures)
      out_ += "<p class=\"bad\">" + EscapeMarkup(failure) + "</p>\n";
    for (const std::string& note : report_.server.notes)
      out_ += "<p class=\"dim\">Note: " + EscapeMarkup(note) + "</p>\n";
  }

  void Card(std::string_view value, std::string_view what) {
    out_ += StrCat("<div class=\"card\"><b>", EscapeMarkup(value), "</b><span>", EscapeMarkup(what),
                   "</span></div>\n");
  }

  void Cards(const RunResult& run) {
    const Figures& all = run.recorder->all();
    out_ += "<div class=\"cards\">\n";
    if (!run.label.empty()) Card(run.label, "the knee of the sweep");
    Card(HumanNumber(run.throughput.output_tokens_per_s), "output tokens / s");
    Card(HumanNumber(run.throughput.requests_per_s), "answers / s");
    if (all.latency[kTtft].count() > 0) {
      Card(HumanSeconds(all.latency[kTtft].Percentile(50)), "TTFT p50");
      Card(HumanSeconds(all.latency[kTtft].Percentile(95)), "TTFT p95");
    }
    if (all.latency[kItl].count() > 0)
      Card(HumanSeconds(all.latency[kItl].Percentile(99)), "ITL p99");
    if (!run.recorder->limits().empty())
      Card(HumanNumber(run.throughput.goodput), "goodput: requests / s within limits");
    Card(StrCat(all.failed(), " of ", all.requests), "failed requests");
    out_ += "</div>\n";
  }

  void Slo(const RunResult& run) {
    if (report_.options.slo.empty()) return;
    out_ +=
        "<h2>Service level "
        "objectives</h2>\n<table><tr><th>term</th><th>measured</th><th></th></tr>\n";
    for (const SloTerm& term : report_.options.slo) {
      const auto verdict = term.Evaluate(run.recorder->all(), run.throughput);
      const std::string value = !verdict.value.has_value() ? "not measured"
                                : term.quantity == SloTerm::Quantity::kLatency
                                    ? HumanSeconds(*verdict.value)
                                    : HumanNumber(*verdict.value);
      out_ += StrCat("<tr><td>", EscapeMarkup(term.text), "</td><td>", value, "</td><td class=\"",
                     verdict.met ? "good\">met" : "bad\">missed", "</td></tr>\n");
    }
    out_ += "</table>\n";
  }

  void Steps() {
    out_ +=
        "<h2>Steps</h2>\n<div "
        "class=\"wide\"><table><tr><th>load</th><th>requests/s</th><th>tokens/s"
        "</th><th>goodput</th><th>TTFT p95</th><th>ITL p99</th><th>failed</th></tr>\n";
    for (const RunResult& run : report_.runs) {
      const Figures& all = run.recorder->all();
      const double ttft = all.latency[kTtft].Percentile(95), itl = all.latency[kItl].Percentile(99);
      out_ +=
          StrCat("<tr><td>", EscapeMarkup(run.label), &run == &report_.main_run() ? " (knee)" : "",
                 "</td><td>", HumanNumber(run.throughput.requests_per_s), "</td><td>",
                 HumanNumber(run.throughput.output_tokens_per_s), "</td><td>",
                 HumanNumber(run.throughput.goodput), "</td><td>", HumanSeconds(ttft), "</td><td>",
                 HumanSeconds(itl), "</td><td>", all.failed(), "</td></tr>\n");
    }
    out_ += "</table></div>\n<div class=\"charts\">" + SweepCharts(report_.runs) + "</div>\n";
  }

  void Latencies(const std::string& title, const Figures& figures, bool formulas) {
    out_ += "<h2>" + EscapeMarkup(title) +
            "</h2>\n<div class=\"wide\"><table><tr><th></th><th>count</th><th>mean</th><th>std</th>"
            "<th>min</th><th>p50</th><th>p90</th><th>p95</th><th>p99</th><th>p99.9</th><th>max</th>"
            "<th class=\"left\">" +
            (formulas ? "formula" : "") + "</th></tr>\n";
    for (int i = 0; i < kNumMeasures; ++i) {
      const Samples& s = figures.latency[i];
      if (s.count() == 0) continue;
      out_ += StrCat("<tr><td>", kMeasures[i].title, "</td><td>", s.count(), "</td>");
      for (const double value : {s.mean(), s.std_dev(), s.min()}) Cell(value);
      for (const auto& [name, q] : kPercentiles) Cell(s.Percentile(q));
      Cell(s.max());
      out_ +=
          StrCat("<td class=\"left dim\">", formulas ? kMeasures[i].formula : "", "</td></tr>\n");
    }
    out_ += "</table></div>\n";
    if (formulas) {
      out_ += StrCat("<p class=\"dim\">t0 is t_", report_.options.open_loop() ? "sched" : "sent",
                     ". A chunk is not a token: tokens are the server’s usage (",
                     figures.output_tokens, " in ", figures.chunks, " chunks).</p>\n");
    }
  }
  void Cell(double seconds) { out_ += "<td>" + HumanSeconds(seconds) + "</td>"; }

  void Outcomes(const RunResult& run) {
    out_ += "<h2>Outcomes</h2>\n<table><tr><th>outcome</th><th>requests</th></tr>\n";
    for (int i = 0; i < kNumOutcomes; ++i) {
      const auto outcome = static_cast<Outcome>(i);
      out_ += StrCat("<tr><td>", OutcomeName(outcome), "</td><td>",
                     run.recorder->all().count(outcome), "</td></tr>\n");
    }
    out_ += "</table>\n";
    if (run.recorder->errors().empty()) return;
    out_ += "<h2>Errors</h2>\n<table>\n";
    for (const auto& [message, count] : run.recorder->errors())
      out_ += StrCat("<tr><td>", count, "</td><td class=\"text\">", EscapeMarkup(message),
                     "</td></tr>\n");
    out_ += "</table>\n";
  }

  void Server(const RunResult& run) {
    if (!run.server.is_null()) Table("What the server counted", run.server);
    const Json memory = run.memory.ToJson();
    if (!memory.is_null()) Table("Memory of the server", memory);
  }

  void Configuration() { Table("Configuration", ConfigJson(report_)); }

  void Table(std::string_view title, const Json& json) {
    out_ += StrCat("<h2>", EscapeMarkup(title), "</h2>\n<table>\n");
    for (const auto& [key, value] : json.as_object()) {
      out_ += StrCat("<tr><td>", EscapeMarkup(key), "</td><td class=\"text\">",
                     EscapeMarkup(value.is_string() ? value.as_string() : value.Dump()),
                     "</td></tr>\n");
    }
    out_ += "</table>\n";
  }

  const RunReport& report_;
  std::string out_;
};

}  // namespace

std::string ReportHtml(const RunReport& report) { return Page(report).Write(); }

}  // namespace thermocline::loadtest
