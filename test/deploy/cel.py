"""As much of CEL, the language of admission policies, as ours use: a parser and an evaluator. It judges the logic of the
expressions; that an API server takes them is for an API server to say. A name that is not bound is an error, as there."""
import re

TOKEN = re.compile(r"\s*(?:(?P<num>\d+)|(?P<str>'[^']*'|\"[^\"]*\")|(?P<name>[A-Za-z_]\w*)|(?P<op>&&|\|\||==|!=|<=|>=|[-+!<>?:.,(){}\[\]]))")


def tokens(text):
    at, out = 0, []
    while at < len(text.rstrip()):
        m = TOKEN.match(text, at)
        if not m:
            raise SyntaxError("at %d: %s" % (at, text[at:at + 20]))
        out.append((m.lastgroup, m.group(m.lastgroup)))
        at = m.end()
    return out + [("end", "")]


class Parser:
    """Makes closures that take the bound names."""
    LEVELS = [["||"], ["&&"], ["==", "!=", "<=", ">=", "<", ">", "in"], ["+"]]

    def __init__(self, text):
        self.t, self.i = tokens(text), 0

    def peek(self):
        return self.t[self.i][1]

    def take(self, wanted=None):
        kind, value = self.t[self.i]
        if wanted is not None and value != wanted:
            raise SyntaxError("'%s' where '%s' is wanted" % (value, wanted))
        self.i += 1
        return kind, value

    def whole(self):
        e = self.ternary()
        if self.t[self.i][0] != "end":
            raise SyntaxError("'%s' is left over" % self.peek())
        return e

    def ternary(self):
        cond = self.binary(0)
        if self.peek() != "?":
            return cond
        self.take("?")
        yes = self.ternary()
        self.take(":")
        no = self.ternary()
        return lambda env: yes(env) if truth(cond(env)) else no(env)

    def binary(self, level):
        if level == len(self.LEVELS):
            return self.unary()
        left = self.binary(level + 1)
        while self.peek() in self.LEVELS[level] and self.t[self.i][0] in ("op", "name"):
            left = operation(self.take()[1], left, self.binary(level + 1))
        return left

    def unary(self):
        if self.peek() == "!":
            self.take()
            e = self.unary()
            return lambda env: not truth(e(env))
        return self.member(self.primary())

    def member(self, e):
        while self.peek() in (".", "[", "{"):
            op = self.take()[1]
            if op == "[":
                index = self.ternary()
                self.take("]")
                e = (lambda e, index: lambda env: field(e(env), index(env)))(e, index)
            elif op == "{":  # Object.metadata{field: value}
                e = self.entries(lambda: self.take()[1])
            else:
                name = self.take()[1]
                e = self.call(e, name) if self.peek() == "(" else (lambda e, name: lambda env: field(e(env), name))(e, name)
        return e

    def call(self, e, name):
        self.take("(")
        if name in ("map", "exists", "all"):
            var = self.take()[1]
            self.take(",")
            body, where = self.ternary(), None
            if name == "map" and self.peek() == ",":  # map(name, condition, value)
                self.take()
                where, body = body, self.ternary()
            self.take(")")
            if where:
                return lambda env: [body({**env, var: item}) for item in e(env) if truth(where({**env, var: item}))]
            over = {"map": list, "exists": any, "all": all}[name]
            return lambda env: over([body({**env, var: item}) for item in e(env)])
        args = []
        while self.peek() != ")":
            args.append(self.ternary())
            if self.peek() == ",":
                self.take()
        self.take(")")
        methods = {"sum": lambda v: sum(v), "max": lambda v: max(v), "asInteger": lambda v: v, "matches": lambda v, p: bool(re.search(p, v)),
                   "startsWith": lambda v, p: v.startswith(p)}
        return lambda env: methods[name](e(env), *[a(env) for a in args])

    def entries(self, key):
        pairs = []
        while self.peek() != "}":
            k = key()
            self.take(":")
            pairs.append((k if callable(k) else (lambda k: lambda env: k)(k), self.ternary()))
            if self.peek() == ",":
                self.take()
        self.take("}")
        return lambda env: {k(env): v(env) for k, v in pairs}

    def primary(self):
        kind, value = self.take()
        if kind == "num":
            return lambda env: int(value)
        if kind == "str":
            return lambda env: value[1:-1]
        if value == "(":
            e = self.ternary()
            self.take(")")
            return e
        if value == "{":
            return self.entries(self.ternary)
        if value == "[":
            items = []
            while self.peek() != "]":
                items.append(self.ternary())
                if self.peek() == ",":
                    self.take()
            self.take("]")
            return lambda env: [i(env) for i in items]
        if kind != "name":
            raise SyntaxError("'%s' begins nothing" % value)
        if value in ("has", "quantity", "int", "string") and self.peek() == "(":
            self.take("(")
            e = self.ternary()
            self.take(")")
            return function(value, e)
        if value == "Object":
            return lambda env: {}
        return lambda env: env[value]


def function(name, e):
    if name == "has":
        def has(env):
            try:
                e(env)
                return True
            except KeyError:
                return False
        return has
    if name == "quantity":
        return lambda env: int(e(env)[:-1]) * 1000 if e(env).endswith("k") else int(e(env))
    return (lambda env: int(e(env))) if name == "int" else (lambda env: str(e(env)))


def truth(v):
    if not isinstance(v, bool):
        raise TypeError("%r is no truth" % (v,))
    return v


def field(v, name):
    return v[name]


def operation(op, a, b):
    if op == "&&":
        return lambda env: truth(a(env)) and truth(b(env))
    if op == "||":
        return lambda env: truth(a(env)) or truth(b(env))
    do = {"==": lambda x, y: x == y, "!=": lambda x, y: x != y, "<=": lambda x, y: x <= y, ">=": lambda x, y: x >= y,
          "<": lambda x, y: x < y, ">": lambda x, y: x > y, "in": lambda x, y: x in y, "+": lambda x, y: x + y}[op]

    def both(env):
        x, y = a(env), b(env)
        if op != "in" and type(x) is not type(y):
            raise TypeError("%r %s %r" % (x, op, y))
        return do(x, y)
    return both


def evaluate(text, env):
    return Parser(text).whole()(env)
