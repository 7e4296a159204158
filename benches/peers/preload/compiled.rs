//! The module that `unwind` has rustc compile many times: an interpreter for arithmetic. It gives
//! the compiler generics, traits, closures, iterators and matches to work on.

use std::collections::{BTreeMap, HashMap};
use std::fmt;

#[derive(Clone, Debug, PartialEq)]
pub enum Token {
    Number(f64),
    Name(String),
    Symbol(char),
}

#[derive(Clone, Debug, PartialEq)]
pub enum Problem {
    UnknownCharacter(char, usize),
    UnknownName(String),
    UnexpectedEnd,
    Unexpected(Token),
    DivisionByZero,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownCharacter(character, place) => write!(f, "`{character}` at {place}"),
            Self::UnknownName(name) => write!(f, "unknown name `{name}`"),
            Self::UnexpectedEnd => f.write_str("unexpected end"),
            Self::Unexpected(token) => write!(f, "unexpected {token:?}"),
            Self::DivisionByZero => f.write_str("division by zero"),
        }
    }
}

impl std::error::Error for Problem {}

pub fn tokenize(text: &str) -> Result<Vec<Token>, Problem> {
    let mut tokens = Vec::new();
    let mut characters = text.char_indices().peekable();
    while let Some((place, character)) = characters.next() {
        let mut word = |accepted: fn(&char) -> bool| {
            let mut word = String::from(character);
            while let Some((_, next)) = characters.next_if(|(_, next)| accepted(next)) {
                word.push(next);
            }
            word
        };
        match character {
            ' ' | '\t' | '\n' => {}
            '0'..='9' => {
                let number = word(|next| next.is_ascii_digit() || *next == '.');
                tokens.push(Token::Number(number.parse().unwrap_or(f64::NAN)));
            }
            'a'..='z' | 'A'..='Z' => tokens.push(Token::Name(word(|next| next.is_alphanumeric()))),
            '+' | '-' | '*' | '/' | '(' | ')' | '^' | ',' => tokens.push(Token::Symbol(character)),
            other => return Err(Problem::UnknownCharacter(other, place)),
        }
    }
    Ok(tokens)
}

#[derive(Clone, Debug, PartialEq)]
pub enum Expression {
    Number(f64),
    Name(String),
    Negation(Box<Expression>),
    Binary(char, Box<Expression>, Box<Expression>),
    Call(String, Vec<Expression>),
}

pub struct Parser<I: Iterator<Item = Token>> {
    tokens: std::iter::Peekable<I>,
}

impl<I: Iterator<Item = Token>> Parser<I> {
    pub fn new(tokens: I) -> Self {
        Self { tokens: tokens.peekable() }
    }

    fn take_symbol(&mut self, accepted: &[char]) -> Option<char> {
        let found = self.tokens.next_if(|token| matches!(token, Token::Symbol(c) if accepted.contains(c)))?;
        match found {
            Token::Symbol(symbol) => Some(symbol),
            Token::Number(_) | Token::Name(_) => None,
        }
    }

    pub fn parse_binary(&mut self, level: usize) -> Result<Expression, Problem> {
        const LEVELS: [&[char]; 3] = [&['+', '-'], &['*', '/'], &['^']];
        let Some(symbols) = LEVELS.get(level) else { return self.parse_operand() };
        let mut left = self.parse_binary(level + 1)?;
        while let Some(symbol) = self.take_symbol(symbols) {
            let right = self.parse_binary(level + 1)?;
            left = Expression::Binary(symbol, Box::new(left), Box::new(right));
        }
        Ok(left)
    }

    fn parse_operand(&mut self) -> Result<Expression, Problem> {
        match self.tokens.next().ok_or(Problem::UnexpectedEnd)? {
            Token::Number(number) => Ok(Expression::Number(number)),
            Token::Symbol('-') => Ok(Expression::Negation(Box::new(self.parse_operand()?))),
            Token::Symbol('(') => {
                let inner = self.parse_binary(0)?;
                self.take_symbol(&[')']).ok_or(Problem::UnexpectedEnd)?;
                Ok(inner)
            }
            Token::Name(name) if self.take_symbol(&['(']).is_some() => {
                let mut arguments = vec![self.parse_binary(0)?];
                while self.take_symbol(&[',']).is_some() {
                    arguments.push(self.parse_binary(0)?);
                }
                self.take_symbol(&[')']).ok_or(Problem::UnexpectedEnd)?;
                Ok(Expression::Call(name, arguments))
            }
            Token::Name(name) => Ok(Expression::Name(name)),
            other => Err(Problem::Unexpected(other)),
        }
    }
}

pub trait Scope {
    fn value_of(&self, name: &str) -> Option<f64>;
}

impl Scope for HashMap<String, f64> {
    fn value_of(&self, name: &str) -> Option<f64> {
        self.get(name).copied()
    }
}

impl Scope for BTreeMap<&str, f64> {
    fn value_of(&self, name: &str) -> Option<f64> {
        self.get(name).copied()
    }
}

impl<S: Scope + ?Sized> Scope for [Box<S>] {
    fn value_of(&self, name: &str) -> Option<f64> {
        self.iter().rev().find_map(|scope| scope.value_of(name))
    }
}

impl Expression {
    pub fn evaluate<S: Scope + ?Sized>(&self, scope: &S) -> Result<f64, Problem> {
        Ok(match self {
            Self::Number(number) => *number,
            Self::Name(name) => scope.value_of(name).ok_or_else(|| Problem::UnknownName(name.clone()))?,
            Self::Negation(inner) => -inner.evaluate(scope)?,
            Self::Binary(symbol, left, right) => {
                let (left, right) = (left.evaluate(scope)?, right.evaluate(scope)?);
                match symbol {
                    '+' => left + right,
                    '-' => left - right,
                    '*' => left * right,
                    '/' if right == 0.0 => return Err(Problem::DivisionByZero),
                    '/' => left / right,
                    _ => left.powf(right),
                }
            }
            Self::Call(name, arguments) => {
                let values: Vec<f64> =
                    arguments.iter().map(|argument| argument.evaluate(scope)).collect::<Result<_, _>>()?;
                match name.as_str() {
                    "min" => values.iter().copied().fold(f64::INFINITY, f64::min),
                    "max" => values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
                    "mean" => values.iter().sum::<f64>() / values.len() as f64,
                    "median" => {
                        let mut sorted = values;
                        sorted.sort_by(f64::total_cmp);
                        sorted[sorted.len() / 2]
                    }
                    _ => return Err(Problem::UnknownName(name.clone())),
                }
            }
        })
    }

    pub fn simplify(self) -> Self {
        match self {
            Self::Binary(symbol, left, right) => match (symbol, left.simplify(), right.simplify()) {
                ('+', Self::Number(zero), other) | ('+', other, Self::Number(zero)) if zero == 0.0 => other,
                ('*', Self::Number(one), other) | ('*', other, Self::Number(one)) if one == 1.0 => other,
                (symbol, left, right) => Self::Binary(symbol, Box::new(left), Box::new(right)),
            },
            Self::Negation(inner) => match inner.simplify() {
                Self::Negation(twice) => *twice,
                Self::Number(number) => Self::Number(-number),
                other => Self::Negation(Box::new(other)),
            },
            Self::Call(name, arguments) => {
                Self::Call(name, arguments.into_iter().map(Self::simplify).collect())
            }
            other => other,
        }
    }
}

pub fn evaluate_lines(text: &str) -> BTreeMap<usize, Result<String, Box<dyn std::error::Error>>> {
    let mut names: HashMap<String, f64> = HashMap::new();
    let mut answers = BTreeMap::new();
    for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let (name, expression) = line.split_once('=').unwrap_or(("last", line));
        let answer = tokenize(expression)
            .and_then(|tokens| Parser::new(tokens.into_iter()).parse_binary(0))
            .map(Expression::simplify)
            .and_then(|expression| expression.evaluate(&names));
        if let Ok(value) = answer {
            names.insert(name.trim().to_owned(), value);
        }
        answers.insert(number, answer.map(|value| format!("{value:.3}")).map_err(Into::into));
    }
    answers
}
