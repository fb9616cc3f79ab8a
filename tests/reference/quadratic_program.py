"""The relaxed and the soft training problem as one sparse quadratic program, solved by Clarabel.

Shares no code with the solvers: marginals, weights and disagreements are variables of the program, tied by equalities that
Python loops over `Structure`s and `Template`s write down.

    max  1/M sum_m weight_m [ (loss + fixed).mu_m - fixed.truth_m - 1/(2 rho) |d_m|^2 ] - lam/2 |w|^2
    s.t. lam M w = sum_m weight_m (phi(truth) - E_mu phi),   d = A mu (d = 0 if rho is None),   mu in its simplices

The polytope of a structured factor is the convex hull of its labelings, one marginal each: those that it and its variables allow.

With `triangles`, the chances of binary pairs to differ must be a metric on every three variables whose pairs are all factors:
d_ij + d_jk + d_ik <= 2 and d_ij <= d_jk + d_ik. Three pairs of binary variables are the marginals of a joint distribution if and
only if they are, and agree.
"""

from __future__ import annotations

import itertools

import clarabel
import numpy as np
import scipy.sparse as sp

from reference.enumeration import examples, statistics


def optimum(graphs, C, rho=None, triangles=False):
    """Value of the relaxed problem G (rho=None), tightened by triangles or not, or of the soft problem G_rho."""
    program = _Program(graphs, 1.0 / C, rho, triangles)
    return program.solve()


class _Program:
    def __init__(self, graphs, lam, rho, triangles=False):
        self.graphs, self.lam, self.rho, self.triangles = graphs, lam, rho, triangles
        self.inequalities = []
        self.rows, self.columns, self.values, self.rhs = [], [], [], []
        self.quadratic, self.linear = [], []  # one entry a variable of the program
        self.allowed = []
        self.constant = 0.0
        self.x = _dense(graphs.variable_features)
        self.z = _dense(graphs.factor_features)
        self.p, self.q = self.x.shape[1], self.z.shape[1]
        n_weights = graphs.n_variable_blocks * self.p + graphs.n_factor_blocks * self.q
        self.w = [self.add(lam) for _ in range(n_weights)]
        self.weight_rows = [[(self.w[i], lam * graphs.n_examples)] for i in range(n_weights)]
        self.weight_rhs = np.zeros(n_weights)
        for m, example in enumerate(examples(graphs)):
            self.example(m, example)
        for row, value in zip(self.weight_rows, self.weight_rhs, strict=True):
            self.equality(row, value)

    def add(self, quadratic=0.0, linear=0.0):
        self.quadratic.append(quadratic)
        self.linear.append(linear)
        return len(self.linear) - 1

    def equality(self, terms, value):
        for column, coefficient in terms:
            self.rows.append(len(self.rhs))
            self.columns.append(column)
            self.values.append(coefficient)
        self.rhs.append(value)

    def weigh(self, feature_row, times, block, offset, share, marginal, is_truth):
        """E_mu phi on the left, phi(truth) on the right of: lam M w + sum weight E phi = sum weight phi(truth)."""
        if block < 0:
            return
        for k, value in enumerate(times * feature_row):
            if value != 0.0:
                at = offset + block * len(feature_row) + k
                if marginal is not None:
                    self.weight_rows[at].append((marginal, share * value))
                if is_truth:
                    self.weight_rhs[at] += share * value

    def example(self, m, example):
        g, M = self.graphs, self.graphs.n_examples
        share = g.arrays.weight[m]
        labels = g.labels[example.first_variable :]
        structure = example.structure
        marginals = []
        for i, t in enumerate(structure.variable_templates):
            template, start = g.variable_templates[t], example.state_start[i]
            row = self.x[g.arrays.examples[m].variable_row + structure.variable_rows[i]]
            own = []
            for k in range(example.n_states[i]):
                fixed = template.scores[k] + (
                    g.arrays.variable_scores[start + k] if len(g.arrays.variable_scores) else 0.0
                )
                own.append(self.marginal(share, fixed + g.arrays.losses[start + k], fixed, k == labels[i], M))
                self.weigh(row, 1.0, template.blocks[k], 0, share, own[-1], k == labels[i])
            self.equality([(one, 1.0) for one in own if one is not None], 1.0)
            marginals.append(own)
        factor_offset, differ = g.n_variable_blocks * self.p, {}
        for c, t in enumerate(structure.factor_templates):
            template, start, shape = g.factor_templates[t], example.table_start[c], example.shapes[c]
            row = self.z[g.arrays.examples[m].factor_row + structure.factor_rows[c]]
            scope = structure.scopes[c]
            sums = [[[] for _ in range(n)] for n in shape]
            own = []
            for states in itertools.product(*(range(n) for n in shape)):
                used = statistics(template, list(states))
                is_truth = all(labels[v] == k for v, k in zip(scope, states, strict=True))
                fixed = 0.0
                for entry, times in used.items():
                    extra = g.arrays.factor_scores[start + entry] if len(g.arrays.factor_scores) else 0.0
                    fixed += times * (template.scores.ravel()[entry] + extra)
                if template.name != "table" and any(
                    marginals[v][k] is None for v, k in zip(scope, states, strict=True)
                ):
                    continue
                one = self.marginal(share, fixed, fixed, is_truth, M)
                for entry, times in used.items():
                    self.weigh(row, times, template.blocks.ravel()[entry], factor_offset, share, one, is_truth)
                if one is not None and len(states) == 2 and states[0] != states[1]:
                    differ.setdefault(frozenset(int(v) for v in scope), []).append(one)
                if one is not None:
                    own.append((one, 1.0))
                    for j, k in enumerate(states):
                        sums[j][k].append((one, 1.0))
            self.equality(own, 1.0)
            for j, v in enumerate(scope):
                for k in range(shape[j]):
                    terms = list(sums[j][k])
                    if marginals[v][k] is not None:
                        terms.append((marginals[v][k], -1.0))
                    if self.rho is not None:
                        terms.append((self.add(share / (self.rho * M)), -1.0))
                    if terms:
                        self.equality(terms, 0.0)
        if self.triangles:
            self.add_triangles(len(example.n_states), differ)

    def add_triangles(self, n, differ):
        for three in itertools.combinations(range(n), 3):
            sides = [frozenset(one) for one in itertools.combinations(three, 2)]
            if all(one in differ for one in sides):
                for signs, most in ((1, 1, 1), 2.0), ((1, -1, -1), 0.0), ((-1, 1, -1), 0.0), ((-1, -1, 1), 0.0):
                    terms = [(at, sign) for one, sign in zip(sides, signs, strict=True) for at in differ[one]]
                    self.inequalities.append((terms, most))

    def marginal(self, share, score, fixed, is_truth, M):
        """A marginal in [0, 1] with its linear score, or None for a forbidden state."""
        if is_truth:
            self.constant -= share / M * fixed
        if np.isneginf(score):
            return None
        one = self.add(0.0, -share / M * score)
        self.allowed.append(one)
        return one

    def solve(self):
        n = len(self.linear)
        equalities = sp.csc_matrix((self.values, (self.rows, self.columns)), shape=(len(self.rhs), n))
        bounds = sp.csc_matrix(
            (-np.ones(len(self.allowed)), (np.arange(len(self.allowed)), self.allowed)), shape=(len(self.allowed), n)
        )
        settings = clarabel.DefaultSettings()
        settings.verbose = False
        settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = 1e-11
        more = sp.lil_matrix((len(self.inequalities), n))
        for row, (terms, _) in enumerate(self.inequalities):
            for column, value in terms:
                more[row, column] = value
        most = [one for _, one in self.inequalities]
        cones = [clarabel.ZeroConeT(len(self.rhs)), clarabel.NonnegativeConeT(len(self.allowed) + len(most))]
        solver = clarabel.DefaultSolver(
            sp.csc_matrix(sp.diags(self.quadratic)), np.array(self.linear), sp.vstack([equalities, bounds, more]).tocsc(),
            np.concatenate([self.rhs, np.zeros(len(self.allowed)), most]), cones, settings,
        )  # fmt: skip
        solution = solver.solve()
        assert str(solution.status) in ("Solved", "AlmostSolved"), solution.status
        return -solution.obj_val + self.constant


def _dense(features):
    matrix = features.matrix()
    return np.asarray(matrix.todense()) if sp.issparse(matrix) else np.asarray(matrix)
