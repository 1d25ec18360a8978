package main

import (
	"github.com/drossel-io/drossel/internal/simulate"
	"github.com/drossel-io/drossel/policy"
)

// A checkReport is the answer of check to programs.
type checkReport struct {
	Policy      string          `json:"policy"`
	Fingerprint string          `json:"fingerprint,omitempty"`
	Store       string          `json:"store,omitempty"`
	Errors      int             `json:"errors"`
	Warnings    int             `json:"warnings"`
	Problems    []problemReport `json:"problems"`
	Limits      []limitReport   `json:"limits"`
	Routes      []routeReport   `json:"routes"`
	Preflight   *limitReport    `json:"preflight,omitempty"` // the limit of CORS preflights; line 0 is the built-in one
}

// A problemReport is a policy.Problem; the fields are the same.
type problemReport struct {
	File    string `json:"file"`
	Line    int    `json:"line"`
	Column  int    `json:"column"`
	Text    string `json:"text"`
	Hint    string `json:"hint,omitempty"`
	Code    string `json:"code,omitempty"`
	Warning bool   `json:"warning"`
}

type limitReport struct {
	Name      string           `json:"name"`
	Rate      string           `json:"rate"`
	Algorithm string           `json:"algorithm"`
	AtOnce    int64            `json:"at_once"`
	FullAgain simulate.Seconds `json:"full_again_seconds"`
	By        string           `json:"by,omitempty"`
	OnMissing string           `json:"on_missing"`
	Shadow    bool             `json:"shadow,omitempty"`
	Status    int              `json:"status"`
	ChargeOn  []int            `json:"charge_on,omitempty"`
	Rates     []rateReport     `json:"rates,omitempty"` // of some requests, in the order in which they are tried
	Candidate string           `json:"candidate,omitempty"`
	Was       string           `json:"was,omitempty"`
	Until     string           `json:"shadow_until,omitempty"`
	UsedBy    []string         `json:"used_by"`
	File      string           `json:"file,omitempty"` // that is included; "" is the policy itself
	Line      int              `json:"line"`
}

type routeReport struct {
	Pattern   string             `json:"pattern"` // "" stands for what no route matches
	Class     string             `json:"class,omitempty"`
	Unlimited bool               `json:"unlimited,omitempty"`
	Deny      bool               `json:"deny,omitempty"`
	Checks    []routeCheckReport `json:"limits"`
	StoreDown string             `json:"store_down"`
	Steps     int                `json:"steps"`
	File      string             `json:"file,omitempty"` // as that of a limit
	Line      int                `json:"line,omitempty"`
}

type routeCheckReport struct {
	Limit  string `json:"limit"`
	Cost   int64  `json:"cost"`
	From   string `json:"from"`
	Shadow bool   `json:"shadow,omitempty"`
}

func newCheckReport(path string, parsed *policy.Policy, problems policy.Problems) checkReport {
	report := checkReport{
		Policy: path, Errors: problems.Errors(), Warnings: len(problems) - problems.Errors(),
		Problems: []problemReport{}, Limits: []limitReport{}, Routes: []routeReport{},
	}
	for _, x := range problems {
		report.Problems = append(report.Problems, problemReport(x))
	}
	if parsed == nil {
		return report
	}
	report.Policy, report.Fingerprint, report.Store = parsed.Name, parsed.Fingerprint, parsed.Store.String()
	for _, l := range parsed.Limits {
		report.Limits = append(report.Limits, newLimitReport(l))
	}
	for _, r := range asked(parsed) {
		report.Routes = append(report.Routes, newRouteReport(r))
	}
	if l, _ := preflight(parsed); l != nil {
		limit := newLimitReport(l)
		report.Preflight = &limit
	}
	return report
}

func newLimitReport(l *policy.Limit) limitReport {
	rate := l.Budget.Limit()
	report := limitReport{
		Name: l.Name, Rate: rate.String(), Algorithm: rate.Algorithm.String(), AtOnce: l.AtOnce(),
		FullAgain: simulate.Seconds(l.FullAgain()), By: l.By, OnMissing: l.OnMissing.String(), Shadow: l.Shadow,
		Status: l.Status, ChargeOn: l.ChargeOn, UsedBy: append([]string{}, l.UsedBy...), File: l.File, Line: l.Line,
		Was: l.Was, Rates: newRateReports(l),
	}
	if l.Candidate != nil {
		report.Candidate = l.Candidate.Budget.Limit().String()
	}
	if !l.ShadowUntil.IsZero() {
		report.Until = policy.Until(l.ShadowUntil)
	}
	return report
}

func newRouteReport(r *policy.Route) routeReport {
	report := routeReport{
		Pattern: r.Pattern, Class: r.Class, Unlimited: r.Unlimited, Deny: r.Deny, Checks: []routeCheckReport{},
		StoreDown: r.OnFailure.String(), Steps: r.Steps(), File: r.File, Line: r.Line,
	}
	for _, c := range r.Checks {
		report.Checks = append(report.Checks, routeCheckReport{
			Limit: c.Limit.Name, Cost: c.Cost, From: c.From, Shadow: c.Limit.Shadow,
		})
	}
	return report
}
