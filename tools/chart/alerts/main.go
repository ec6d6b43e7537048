// Evaluates alerting rules with Prometheus' own engine over series that a test makes up. It reads
// {"rules": [...], "cases": [{"alert", "series": ["metric{a=\"b\"} 0+1x10", ...], "minutes"}]} from standard input, where a
// series has one value a minute, and answers for each case the alerts that fire in its last minute:
// [[{"labels": {...}, "annotations": {...}}, ...], ...]
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math"
	"net/url"
	"os"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/rules"
	"github.com/prometheus/prometheus/tsdb"
)

type rule struct {
	Alert       string            `json:"alert"`
	Expr        string            `json:"expr"`
	For         string            `json:"for"`
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
}

type example struct {
	Alert   string   `json:"alert"`
	Series  []string `json:"series"`
	Minutes int      `json:"minutes"`
}

type firing struct {
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
}

var (
	quiet  = slog.New(slog.DiscardHandler)
	parse  = parser.NewParser(parser.Options{})
	start  = time.Unix(0, 0).UTC()
	engine = promql.NewEngine(promql.EngineOpts{
		Logger: quiet, MaxSamples: 1_000_000, Timeout: time.Minute, LookbackDelta: 5 * time.Minute, Parser: parse,
	})
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func run() error {
	var input struct {
		Rules []rule    `json:"rules"`
		Cases []example `json:"cases"`
	}
	if err := json.NewDecoder(os.Stdin).Decode(&input); err != nil {
		return err
	}
	byName := map[string]rule{}
	for _, each := range input.Rules {
		byName[each.Alert] = each
	}
	answers := [][]firing{}
	for _, each := range input.Cases {
		answer, err := evaluate(byName[each.Alert], each)
		if err != nil {
			return fmt.Errorf("%s: %w", each.Alert, err)
		}
		answers = append(answers, answer)
	}
	return json.NewEncoder(os.Stdout).Encode(answers)
}

func evaluate(from rule, with example) ([]firing, error) {
	folder, err := os.MkdirTemp("", "margay-alerts-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(folder)
	options := tsdb.DefaultOptions()
	options.MinBlockDuration = (24 * time.Hour).Milliseconds() // else a second series may not begin where the first did
	options.MaxBlockDuration = options.MinBlockDuration
	db, err := tsdb.Open(folder, quiet, nil, options, nil)
	if err != nil {
		return nil, err
	}
	defer db.Close()
	for _, series := range with.Series {
		if err := write(db, series); err != nil {
			return nil, fmt.Errorf("%s: %w", series, err)
		}
	}
	alerting, err := build(from)
	if err != nil {
		return nil, err
	}
	query := rules.EngineQueryFunc(engine, db)
	for minute := 0; minute <= with.Minutes; minute++ {
		at := start.Add(time.Duration(minute) * time.Minute)
		if _, err := alerting.Eval(context.Background(), 0, at, query, &url.URL{}, 0); err != nil {
			return nil, err
		}
	}
	answer := []firing{}
	for _, alert := range alerting.ActiveAlerts() {
		if alert.State == rules.StateFiring {
			answer = append(answer, firing{alert.Labels.Map(), alert.Annotations.Map()})
		}
	}
	return answer, nil
}

func write(db *tsdb.DB, series string) error {
	names, values, err := parse.ParseSeriesDesc(series)
	if err != nil {
		return err
	}
	appender := db.Appender(context.Background())
	for minute, value := range values {
		if value.Omitted || math.IsNaN(value.Value) {
			continue
		}
		at := start.Add(time.Duration(minute) * time.Minute)
		if _, err := appender.Append(0, names, at.UnixMilli(), value.Value); err != nil {
			return err
		}
	}
	return appender.Commit()
}

func build(from rule) (*rules.AlertingRule, error) {
	expression, err := parse.ParseExpr(from.Expr)
	if err != nil {
		return nil, err
	}
	var hold model.Duration
	if from.For != "" {
		if hold, err = model.ParseDuration(from.For); err != nil {
			return nil, err
		}
	}
	return rules.NewAlertingRule(
		from.Alert, expression, time.Duration(hold), 0,
		labels.FromMap(from.Labels), labels.FromMap(from.Annotations), labels.EmptyLabels(), "", true, quiet,
	), nil
}
